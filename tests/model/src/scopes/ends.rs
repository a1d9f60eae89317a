//! The list of worlds in which a lease is checked, lost or released while an operation is at work
//! on it.

use super::{faulty, guarded, millis};
use crate::scope::{Scope, policy};

/// One lease, as nobody else matters for what brings it back or leaves its keys.
pub(super) fn small() -> Vec<Scope> {
    let delayed = policy(|it| it.try_once().auto_extend(true).lock_delay(millis(300)));
    vec![
        alone(faulty("one lease that is checked", 1, |it| {
            (it.checks, it.pauses, it.resends, it.delays) = (1, 1, 1, 1);
        })),
        alone(Scope {
            policy: policy(|it| it.try_once().fencing(false)),
            ..faulty("one lease that is extended, checked and given back", 1, |it| {
                (it.checks, it.extends, it.shortens, it.pauses) = (1, 1, 1, 1);
            })
        }),
        alone(Scope {
            policy: delayed.to_builder().max_hold(millis(400)).build().expect("it was valid"),
            ..faulty("lock-delay, one lease that is checked", 1, |it| {
                (it.checks, it.pauses, it.hangs) = (1, 1, 1);
            })
        }),
        alone(Scope {
            policy: policy(|it| it.try_once().fencing(false)),
            ..faulty("one lease that another extends by a shorter ttl", 0, |it| {
                (it.extends_elsewhere, it.extends) = (1, 1);
            })
        }),
        Scope {
            policy: policy(|it| it.try_once().fencing(false)),
            // Extended in the middle of its life, it lasts a little longer than who acquired it trusts it.
            elsewhere: policy(|it| it.ttl(millis(520))),
            ..faulty("a lease that another extends", 0, |it| it.extends_elsewhere = 1)
        },
        Scope {
            policy: policy(|it| it.try_once().fencing(false).lock_delay(millis(300))),
            elsewhere: policy(|it| it.ttl(millis(3000))),
            ..faulty("lock-delay, a lease that another extends", 0, |it| {
                it.extends_elsewhere = 1;
            })
        },
        faulty("commands that arrive late", 1, |it| it.strays = 1),
        Scope {
            policy: policy(|it| it.try_once().min_hold(millis(1500))),
            ..faulty("least hold, commands that arrive late", 1, |it| it.strays = 1)
        },
        alone(Scope {
            policy: policy(|it| it.try_once().fencing(false)),
            ..faulty("one lease, commands that arrive late", 2, |it| {
                (it.strays, it.extends, it.shortens) = (2, 1, 1);
            })
        }),
        alone(guarded::flushed("guards: one lease that is renewed, checked and flushed")),
    ]
}

fn alone(scope: Scope) -> Scope {
    Scope { clients: 1, ..scope }
}
