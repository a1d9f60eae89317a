-- Gives up the place of a waiter that waits no longer, in the queue of every lock key. If it was
-- the first, the next one is called where the key is free, and else told that it is the first now.
-- Runs behind queue.lua.
--
-- KEYS   as in queue.lua
-- ARGV   1 the name of the waiter
-- reply  1
local member = ARGV[1]
for i = 1, locks do
  local was_first = at_rank(i, 0) == member
  drop(i, member)
  if was_first then
    if redis.call('EXISTS', KEYS[i]) == 0 then
      call(i)
    else
      tell_at(i, 0, 'first')
    end
  end
end
return 1
