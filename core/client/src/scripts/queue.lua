-- The queues in which waiters stand for lock keys: their places, who is first, and how it is
-- called. The functions here are what enqueue, leave, count_waiters, fair and call have in common:
-- this text stands before each of theirs.
--
-- KEYS   the n lock keys, then the n queues, then the n sets of lives
--        queue  sorted set: member = the name of a waiter, score = when it arrived in microseconds
--        lives  sorted set: the same members, score = until when the place counts, in milliseconds of this node's clock
--
-- The first is the one with the lowest (score, member), on every node alike. PUBLISH may be forbidden: then nobody is
-- called, and places stay.
local locks = #KEYS / 3
local LIFE, TURN, MOST, STEP, SILENT = 10000, 50, 10000, 16, 1000
local clock = redis.call('TIME')
local time = clock[1] * 1000000 + clock[2]
local millis = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function drop(i, member)
  redis.call('ZREM', KEYS[locks + i], member)
  redis.call('ZREM', KEYS[2 * locks + i], member)
end

local function drop_ended(i)
  local ended = redis.call('ZRANGEBYSCORE', KEYS[2 * locks + i], '-inf', millis, 'LIMIT', 0, STEP)
  for j = 1, #ended do drop(i, ended[j]) end
end

local function at_rank(i, rank)
  return redis.call('ZRANGE', KEYS[locks + i], rank, rank)[1]
end

-- Fails, before anything is changed, where the user may not do what it takes to take a place and to leave again.
local function need_rights(i)
  redis.call('EXISTS', KEYS[i])
  redis.call('ZCARD', KEYS[locks + i])
  at_rank(i, 0)
  redis.call('ZREM', KEYS[locks + i], 'nobody')
end

-- How many connections got the news; -1 if it could not be sent.
local function tell(i, member, news)
  local process, number = string.match(member, '^w(%x+)%.(%x+)$')
  if not process then return 0 end
  local text = news .. ' ' .. number .. ' ' .. KEYS[i]
  local heard = redis.pcall('PUBLISH', 'quorlock:wake:' .. process, text)
  return type(heard) == 'table' and -1 or heard
end

-- Tells the one at this rank. A waiter whose process is gone loses its place, and the one behind it is told.
local function tell_at(i, rank, news)
  for _ = 1, STEP do
    local member = at_rank(i, rank)
    if not member then return end
    local heard = tell(i, member, news)
    if heard ~= 0 then return member, heard end
    drop(i, member)
  end
end

-- The key is free: calls the first waiter, and tells the one behind it that its turn may be next.
local function call(i)
  drop_ended(i)
  local first, heard = tell_at(i, 0, 'freed')
  if first and heard > 0 then
    redis.call('ZADD', KEYS[2 * locks + i], 'XX', 'LT', millis + TURN, first)
    tell_at(i, 1, 'next')
  end
end

-- The key is held. Asks whether the first waiter's process still listens: no other waiter learns of a release by a
-- client that knows no queue. Asks nothing during its turn, or if it has looked less than SILENT milliseconds ago.
local function check_first(i)
  local first = at_rank(i, 0)
  local left = first and tonumber(redis.call('ZSCORE', KEYS[2 * locks + i], first) or 0) - millis
  if left and left > TURN and left <= LIFE - SILENT and tell(i, first, 'ping') == 0 then
    drop(i, first)
    tell_at(i, 0, 'first')
  end
end
