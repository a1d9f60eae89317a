-- Writes, keeps or deletes a record beside a lock key, if the lock key is the holder's. A record is kept as long as
-- the lock key, or longer: another who has the token may have extended that.
--
-- KEYS   1 the record · 2 the lock key
-- ARGV   1 holder id
--        2 ttl of the record in milliseconds at least; 0 = delete it, also where the lock key is gone
--        3 its value; '' = keep the one that is there; to delete it: the most milliseconds that may be left of the lock
--          key, '' = any
-- reply  OK, or nil if it is left alone
local holder, ttl = redis.call('GET', KEYS[2]), tonumber(ARGV[2])
if holder ~= ARGV[1] and (holder or ttl > 0) then return false end
if ttl == 0 then
  local most = tonumber(ARGV[3])
  if most and redis.call('PTTL', KEYS[2]) > most then return false end
  redis.call('DEL', KEYS[1])
  return redis.status_reply('OK')
end
ttl = string.format('%.0f', math.max(ttl, redis.call('PTTL', KEYS[2])))
if ARGV[3] ~= '' then return redis.call('SET', KEYS[1], ARGV[3], 'PX', ttl) end
redis.call('PEXPIRE', KEYS[1], ttl)
return redis.status_reply('OK')
