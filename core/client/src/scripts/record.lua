-- Writes a record beside a lock, or keeps the one that stands there, for at least a ttl from now. A longer time
-- that is left of it stays, as it does for the lock key: another who has the token may have extended that.
--
-- KEYS   1 the record
-- ARGV   1 its value; '' = keep the one that is there
--        2 ttl in milliseconds
-- reply  OK
local known = redis.call('GET', KEYS[1])
if ARGV[1] ~= '' and known ~= ARGV[1] then return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
if known and redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return redis.status_reply('OK')
