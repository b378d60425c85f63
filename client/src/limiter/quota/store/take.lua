-- Takes tokens from all buckets, or from none.
-- KEYS: the buckets, in one slot. ARGV: max, refill, every_ms, least, wanted for each; in tests the time in ms.
-- All numbers are at most 2^53, so that doubles are exact; a larger sum is cut to the size of the bucket in any case.
local MOST = 9007199254740992
local now = tonumber(ARGV[#KEYS * 5 + 1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local function number(text)
  return math.min(tonumber(text), MOST)
end

local function divided(a, b)
  return (a - math.fmod(a, b)) / b
end

-- The refills after which a bucket has `missing` tokens more.
local function refills_for(missing, refill)
  if missing <= 0 then return 0 end
  return divided(missing - 1, refill) + 1
end

local buckets, enough = {}, true
for i, key in ipairs(KEYS) do
  local at = (i - 1) * 5
  local b = { max = number(ARGV[at + 1]), every = number(ARGV[at + 3]), granted = 0 }
  b.refill = math.min(number(ARGV[at + 2]), b.max)
  b.least, b.wanted = number(ARGV[at + 4]), number(ARGV[at + 5])
  local held = redis.call('HMGET', key, 't', 'r')
  local tokens, refilled = tonumber(held[1]), tonumber(held[2])
  if not tokens or not refilled then
    tokens, refilled = b.max, now
  end
  local elapsed = math.max(0, now - refilled)
  elapsed = elapsed - math.fmod(elapsed, b.every)
  b.tokens = math.min(b.max, tokens + elapsed / b.every * b.refill)
  b.refilled = refilled + elapsed
  enough = enough and b.tokens >= b.least
  buckets[i] = b
end

local reply = {}
for i, key in ipairs(KEYS) do
  local b = buckets[i]
  if enough then
    local extra = math.min(math.max(0, b.wanted - b.least), divided(b.tokens - b.least, 4))
    b.granted = b.least + extra
    b.tokens = b.tokens - b.granted
    if b.granted > 0 then
      redis.call('HSET', key, 't', string.format('%.0f', b.tokens), 'r', string.format('%.0f', b.refilled))
      local full_in = refills_for(b.max - b.tokens, b.refill) * b.every + (b.refilled - now)
      redis.call('PEXPIRE', key, string.format('%.0f', math.min(full_in, MOST)))
    end
  end
  local holds_in = -1
  if b.least <= b.max then
    holds_in = math.max(0, refills_for(b.least - b.tokens, b.refill) * b.every + (b.refilled - now))
  end
  reply[i] = { b.granted, b.tokens, math.min(b.every + (b.refilled - now), MOST), math.min(holds_in, MOST) }
end
return reply
