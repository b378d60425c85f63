-- Asks a Plimsoll sidecar about each request, for `http-request lua.plimsoll`. The page haproxy.md explains it.

-- The listener of haproxy.cfg before the sidecar.
local ASK = "http://127.0.0.1:7429/check"
-- Longer than the timeouts behind that listener, in milliseconds.
local TIMEOUT = 150
-- HAProxy writes these fields itself.
local OWN = { connection = true, date = true, ["content-length"] = true, ["transfer-encoding"] = true }

local function first(values)
    return values and values[0]
end

-- What callers choose is cleaned: the sidecar would answer control bytes with 400, which lets a request through.
local function matching(value, pattern)
    return value and #value <= 128 and value:match(pattern) and { value }
end

local function ask(txn)
    local headers = {
        ["x-forwarded-method"] = { txn.sf:method():sub(1, 32) },
        ["x-forwarded-uri"] = { txn.sf:pathq() },
    }
    -- All that the sidecar sees of the caller, with what the configuration sets.
    local sent = txn.http:req_get_headers()
    headers["traceparent"] = matching(first(sent["traceparent"]), "^[%x-]+$")
    -- Of the fields of a preflight only that they are there.
    headers["origin"] = sent["origin"] and { "null" }
    headers["access-control-request-method"] = sent["access-control-request-method"] and { "GET" }
    for _, name in ipairs({ "bucket", "tenant", "cost" }) do
        local value = txn:get_var("txn.plimsoll_" .. name)
        headers["x-plimsoll-" .. name] = value and matching(tostring(value), "^[^%c]+$")
    end
    return core.httpclient():get({
        url = ASK,
        headers = headers,
        timeout = TIMEOUT,
    })
end

local function plimsoll(txn)
    local asked, answer = pcall(ask, txn)
    if not asked or answer.status ~= 429 then
        -- Only 429 refuses.
        local withheld = asked and answer.headers and first(answer.headers["x-plimsoll-shadow"])
        if withheld then
            txn:set_var("txn.plimsoll_shadow", withheld)
        end
        return
    end
    local refusal = txn:reply({ status = 429, reason = "Too Many Requests", body = answer.body })
    for name, values in pairs(answer.headers) do
        if not OWN[name] then
            for _, value in pairs(values) do
                refusal:add_header(name, value)
            end
        end
    end
    txn:done(refusal)
end

core.register_action("plimsoll", { "http-req" }, plimsoll, 0)
