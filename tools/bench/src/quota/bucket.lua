-- Takes tokens of a bucket that is refilled on its phase, by the clock of the server.
-- KEYS: bucket. ARGV: max, refill, milliseconds between refills, tokens to take. Returns the tokens before.
local max, refill = tonumber(ARGV[1]), tonumber(ARGV[2])
local every, take = tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'since')
local tokens, since = tonumber(bucket[1]) or max, tonumber(bucket[2]) or now
local refills = math.floor(math.max(0, now - since) / every)
tokens = math.min(max, tokens + refills * refill)
redis.call('HSET', KEYS[1], 'tokens', math.max(tokens - take, 0), 'since', since + refills * every)
redis.call('PEXPIRE', KEYS[1], math.ceil(max / refill) * every)
return tokens
