-- The end of the script by which a holder gives a lock back: calls the first waiter of each lock
-- key that is free then.
--
-- Runs behind queue.lua and revoke.lua, whose text is the function `revoke` here. The user may lack
-- a right to call: what was revoked stays revoked.
local reply = revoke()
for i = 1, locks do
  if redis.call('EXISTS', KEYS[i]) == 0 then pcall(call, i) end
end
return reply
