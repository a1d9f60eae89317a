-- Has a node remember its fences (the highest fencing tokens that were granted) for a while longer:
-- makes their table if there is none, and puts its end off. Sent ahead of the first grant with a
-- fencing token on each connection, and every ten seconds from then on.
--
-- KEYS   1 the table of fences
-- ARGV   1 least ttl of the table in milliseconds
-- reply  this node's clock in microseconds
--
-- A score of 0 is no fence. An end is only ever put off: another client may need it later.
redis.call('ZADD', KEYS[1], 'NX', 0, 0)
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
local clock = redis.call('TIME')
return clock[1] * 1000000 + clock[2]
