-- Looks at the node for the guards, leaves notes for clients that come later, and puts a new canary in
-- the place of the one that was seen.
--
-- KEYS   1 the canary key · 2 the notes key
-- ARGV   1 ttl of both keys in milliseconds
--        2 the longest time in milliseconds for which this client asks nodes to keep keys
--        3 how far the node's clock is ahead of the middle one in microseconds, '' = not known
--        4 by how much that may be wrong, in microseconds
--        5 when that was, by this node's clock in microseconds
--        6 a new canary, '' = none
--        7 the canary that must stand there for that, '' = none stands there
-- reply  {canary or false, time, longest, ahead or false, its uncertainty, its time}
--        time   this node's clock in microseconds
--        the others as they stand afterwards; longest 0 = nobody has asked
local canary = redis.call('GET', KEYS[1])
if ARGV[6] ~= '' and (canary or '') == ARGV[7] then
  canary = ARGV[6]
  redis.call('SET', KEYS[1], canary, 'PX', ARGV[1])
elseif canary then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end

-- How its clock stood before is of no use after a new canary. A longer time that nobody asks for any more is forgotten with the key.
local notes = redis.call('GET', KEYS[2]) or '0'
local longest, ahead, wrong, at = string.match(notes, '^(%d+) ?(%-?%d*) ?(%d*) ?(%d*)')
local asked = tonumber(ARGV[2])
local grows = asked >= (tonumber(longest) or 0)
if grows then longest = ARGV[2] end
if ARGV[3] ~= '' or ARGV[6] ~= '' then ahead, wrong, at = ARGV[3], ARGV[4], ARGV[5] end
if asked > 0 and (grows or ARGV[3] ~= '' or ARGV[6] ~= '') then
  local fresh = longest .. ' ' .. (ahead or '') .. ' ' .. (wrong or '') .. ' ' .. (at or '')
  if grows then
    redis.call('SET', KEYS[2], fresh, 'PX', ARGV[1])
  else
    redis.call('SET', KEYS[2], fresh, 'KEEPTTL')
  end
end

local clock = redis.call('TIME')
return {canary, clock[1] * 1000000 + clock[2], tonumber(longest) or 0, ahead ~= '' and ahead or false, wrong, at}
