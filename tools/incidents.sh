#!/usr/bin/env bash
# Causes incidents in a fleet of real processes on loopback, so that operators practise before they need it.
#
#   cargo build --release
#   tools/incidents.sh 1        starts a fleet, causes the first of twelve incidents, and prints the question
#   tools/incidents.sh answer   prints the command that answers it
#   tools/incidents.sh stop     stops the fleet
#
# The controller's port is the default one, so commands need no address. Everything stops by itself after two hours.
set -euo pipefail

plimsoll=$(cd "$(dirname "$0")/.." && pwd)/target/release/plimsoll
folder=${TMPDIR:-/tmp}/plimsoll-incidents
export PLIMSOLL_ADMIN_OPEN_ON_LOOPBACK=true PLIMSOLL_LOG=warn

start() { # NAME COMMAND..
    local name=$1
    shift
    setsid timeout 2h "$plimsoll" "$@" >"$folder/$name.log" 2>&1 &
    echo $! >"$folder/$name.pid"
    disown
}

stop() { # NAME
    # A signal of its own for the child of `timeout`, which a stopped process would not get.
    pkill "-${2:-KILL}" -P "$(cat "$folder/$1.pid")" || true
}

stop_all() {
    for file in "$folder"/*.pid; do
        [ ! -e "$file" ] || stop "$(basename "$file" .pid)"
    done
    rm -rf "$folder"
}

load() { # NAME BUCKET RPS TENANTS [FLAG..]
    local name=$1 bucket=$2 rps=$3 tenants=$4
    shift 4
    start "load-$name" load --target "http://127.0.0.1:8081/$bucket,http://127.0.0.1:8082/$bucket" \
        --rps "$rps" --tenant "$tenants" "$@"
}

until_answered() { # COMMAND..
    for _ in $(seq 150); do
        "$@" >"$folder/answer" 2>&1 && return
        sleep 0.2
    done
    cat "$folder/answer" "$folder"/*.log >&2
    exit 1
}

fleet() {
    cat >"$folder/policy.yaml" <<'YAML'
quotas:
  exports: { max: 300, refill: 300, every: 10m, key: tenant }
buckets:
  checkout: { limit: 300, mode: enforce }
  login: { limit: 400, mode: enforce }
  orders: { limit: 200, mode: canary }
  report: { limit: 500, mode: enforce, quotas: [exports] }
  search: { limit: 300, mode: enforce }
YAML
    cat >"$folder/tenants.yaml" <<'YAML'
tenants:
  default: { weight: 1 }
  acme: { weight: 1 }
  globex: { weight: 3 }
  initech: { weight: 3 }
  umbrella: { weight: 1, limits: { checkout: 40 } }
YAML
    start quota quota --data "$folder/quota"
    start controller controller --policy "$folder/policy.yaml" --tenants "$folder/tenants.yaml" --state-dir "$folder/state"
    until_answered "$plimsoll" events
    local number
    for number in 1 2; do
        start "aggregator-$number" aggregator --zone "zone-$number" --listen "127.0.0.1:741$number" --admin "127.0.0.1:742$number"
        start "service-$number" service --zone "zone-$number" --aggregator "http://127.0.0.1:741$number" \
            --listen "127.0.0.1:808$number" --quota-store plimsoll://127.0.0.1:9049 \
            --buckets checkout,login,orders,report,search
    done
    until_answered curl -sf http://127.0.0.1:8081/healthz
    until_answered curl -sf http://127.0.0.1:8082/healthz
    load checkout checkout 130 globex,initech
    load login login 120 acme,globex,initech
    load orders orders 80 acme,globex
    load search search 100 globex,initech
    until_answered "$plimsoll" status
}

edit() { # FROM TO
    sed "s/$1/$2/" "$folder/policy.yaml" >"$folder/edited" && mv "$folder/edited" "$folder/policy.yaml"
}

cause() { # NUMBER
    local number
    case $1 in
    1)
        load acme checkout 400 acme
        echo "acme writes that checkout refuses it. Since when, how much of it, why, and who takes the rest?"
        ;;
    2)
        load umbrella checkout 120 umbrella
        echo "umbrella is refused in checkout, which is below its limit. Why?"
        ;;
    3)
        load users checkout 150 user --names 60
        load scraper checkout 300 scraper-17
        echo "Many customers that the policy does not list are refused in checkout. Which caller crowds them out?"
        ;;
    4)
        load reports report 20 acme
        echo "acme gets 429 for every report. Why, and what has it used?"
        ;;
    5)
        load bursts search "0$(for number in $(seq 1 2 600); do printf ',1500@%ds,0@%dms' "$number" "$((number * 1000 + 150))"; done)" acme
        echo "search refuses requests although it is asked for less than its limit. What refuses them?"
        ;;
    6)
        edit 'login: { limit: 400' 'login: { limit: 20'
        echo "A new policy was saved a minute ago, and nothing changed. What waits, why, and what would it refuse?"
        ;;
    7)
        stop aggregator-2
        echo "An alert says that something is wrong with a zone. What is lost, and what happens to its limits?"
        ;;
    8)
        stop controller STOP
        echo "Commands hang. What is wrong, and is the fleet still protected?"
        ;;
    9)
        load reports report 2 acme
        stop quota
        echo "An alert says that quotas are degraded. What is away, and what happens to requests meanwhile?"
        ;;
    10)
        "$plimsoll" rollout promote orders --force --reason 'launch of the spring sale' >/dev/null
        edit 'search: { limit: 300' 'search: { limit: 320'
        echo "orders began to refuse today. What was changed, when, by whom, and why?"
        ;;
    11)
        "$plimsoll" kill on --reason 'practice' >/dev/null
        sleep 3
        "$plimsoll" kill off --reason 'practice is over' >/dev/null || true
        echo "A kill has ended. Bring every bucket back to what it did before."
        ;;
    12)
        load initech checkout 300 initech
        load acme checkout 200 acme
        echo "acme is to be refused less than half of its requests in checkout. Which single change does that, and what does it cost the others?"
        ;;
    esac
    # The answers of the fleet are about ten seconds.
    sleep 20
}

answers=(
    'plimsoll why acme' 'plimsoll why umbrella' 'plimsoll why default checkout' 'plimsoll why acme report'
    'plimsoll why acme search' 'plimsoll diff' 'plimsoll status' 'plimsoll doctor' 'plimsoll status' 'plimsoll events'
    'plimsoll rollout resume --all --reason TEXT' 'plimsoll why acme checkout'
)

case ${1-} in
[1-9] | 1[0-2])
    stop_all
    mkdir -p "$folder"
    fleet
    question=$(cause "$1")
    echo "$1" >"$folder/number"
    echo "$question"
    ;;
answer) echo "${answers[$(cat "$folder/number") - 1]}" ;;
stop) stop_all ;;
*)
    sed -n '2,/^set/p' "$0" | sed '$d;s/^# \{0,1\}//'
    exit 2
    ;;
esac
