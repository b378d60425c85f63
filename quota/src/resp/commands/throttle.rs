//! The command `CL.THROTTLE`, with the arguments of the module of Redis that has it.

use plimsoll_core::quota::GcraRate;

use super::{Asked, Fault, Least, key, number};
use crate::operation::Operation;
use crate::resp::counters::Counted;

/// Reads `key max_burst count period [quantity]`.
pub(in crate::resp) fn throttle<'a>(arguments: &[&'a [u8]]) -> Result<Asked<'a>, Fault> {
    let (arguments, quantity) = match arguments {
        [arguments @ .., quantity] if arguments.len() == 4 => (arguments, number(quantity)?),
        arguments => (arguments, 1),
    };
    let [name, max_burst, count, period] = arguments else { return Err(Fault::Count("cl.throttle")) };
    let rate = GcraRate::new(number(max_burst)?, number(count)?, number(period)?);
    let operation = Operation::Throttle { key: key(name)?, rate: rate.map_err(|_| Fault::Number)?, quantity };
    Ok(Asked { operation, counted: Counted::Throttle, least: Least::Said })
}
