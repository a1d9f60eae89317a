//! Why each default is what it is.
//!
//! | setting | default | why |
//! |---|---|---|
//! | ttl | 10 s | long against a slow network or a collection pause, short against a person's patience after a crash |
//! | drift factor | 0.01 | quartz is a thousand times better; virtual machines under load are not |
//! | drift constant | 2 ms | nodes expire at a grain of 1 ms, and their clock may be 1 ms old |
//! | node timeout | ttl / 50, from 50 ms to 250 ms | only matters where the quorum needs the slow node; small against the ttl |
//! | timeout | none | a lock of the standard library waits too; Node keeps node-redlock's ten retries instead |
//! | retry limit | none | a caller that sets no limit waits until it holds the lock |
//! | retry delay | 100 ms, jitter 50 ms | for callers that poll: ten tries a second cost a node little; the spread keeps rivals from splitting votes in step |
//! | unreachable timeout | 3 s | outlasts the restart of a node, and tells a wrong address soon |
//! | fencing | on | without a token the protected resource cannot refuse a late holder |
//! | auto extend | off; on in blocks and decorators | there the code says where the work ends |
//! | renewal | after a third of the validity | two more tries fit in before the end |
//! | max hold | 24 h | a stuck process must not hold for ever |
//! | restart guard | auto | a node that forgets is the rule without `appendfsync always`; a new cluster must not stand still first |
//! | clock guard | on | costs a comparison for each grant |
//! | max ttl | none | the longest ttl in use is noted on the nodes; a limit only makes it certain |
//! | lock delay | 0 s | a crash would cost that much more; fencing tokens do better where they can be checked |
//! | min hold | 0 s | only jobs that are begun by several clocks have a use for it |
//! | wait | push | a caller that is called comes sooner and asks less; nodes that cannot call are polled anyway |
//! | fair | off | order costs one more round trip where the lock is free, and holds only among those who ask for it |
//! | on unreachable | raise | work without its lock must never be what nobody asked for |
//! | fence retention | 120 s | after that the clocks of the nodes have overtaken any forgotten token, unless they differ by more than a minute |
