-- Gives tokens of a lease back.
-- KEYS: the bucket, and the mark of this call, which Redis Cluster may carry out again after a lost reply.
-- ARGV: max, tokens.
local MOST = 9007199254740992
local max, tokens = math.min(tonumber(ARGV[1]), MOST), math.min(tonumber(ARGV[2]), MOST)
local held = tonumber(redis.call('HGET', KEYS[1], 't'))
if not held then
  -- The bucket expired, so that it is full.
  return max
end
if not redis.call('SET', KEYS[2], '1', 'NX', 'PX', 60000) then
  return held
end
held = math.min(max, held + tokens)
redis.call('HSET', KEYS[1], 't', string.format('%.0f', held))
return held
