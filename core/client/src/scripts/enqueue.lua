-- Takes or keeps the place of a waiter in the queue of every lock key, and tells it how the lock
-- stands. Grants nothing. Runs behind queue.lua.
--
-- KEYS   as in queue.lua
-- ARGV   1 the name of the waiter
--        2 when it arrived, in microseconds since 1970
-- reply  {free, rank, pttl}, integers
--        free   1 = every lock key is free
--        rank   how many places are before this one, the most of several; -1 = the queue is full
--        pttl   milliseconds until the last of the lock keys is free; -1 = never · -2 = all are free
--
-- With several lock keys the place is taken only where the key is held.
local member, arrived = ARGV[1], ARGV[2]
local rank, pttl, is_full = 0, -2, false
for i = 1, locks do
  local queue, lives = KEYS[locks + i], KEYS[2 * locks + i]
  drop_ended(i)
  local left = redis.call('PTTL', KEYS[i])
  if left == -1 or (left >= 0 and pttl ~= -1 and left > pttl) then pttl = left end
  if locks == 1 or left ~= -2 or redis.call('ZSCORE', queue, member) then
    local has_place = redis.call('ZSCORE', queue, member)
    if not has_place then need_rights(i) end
    if has_place or redis.call('ZCARD', queue) < MOST then
      redis.call('ZADD', queue, 'NX', arrived, member)
      redis.call('ZADD', lives, millis + LIFE, member)
      redis.call('PEXPIRE', queue, 2 * LIFE)
      redis.call('PEXPIRE', lives, 2 * LIFE)
    end
    local before = redis.call('ZRANK', queue, member)
    if before and before > 0 then
      -- Nobody else may know that the key is free, or that the first is gone.
      if left == -2 then call(i) else check_first(i) end
      before = redis.call('ZRANK', queue, member)
    end
    if before then rank = math.max(rank, before) else is_full = true end
  end
end
return {pttl == -2 and 1 or 0, is_full and -1 or rank, pttl}
