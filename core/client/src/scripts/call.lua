-- Stands behind queue.lua and a function `revoke`: calls the first waiter of each key that is free now. The user may
-- lack a right to do so: what was revoked stays revoked.
local reply = revoke()
for i = 1, locks do
  if redis.call('EXISTS', KEYS[i]) == 0 then pcall(call, i) end
end
return reply
