//! Pairs: two instructions of a group, with their roundings, in one pass over the registers.
//!
//! Most groups are sequences of sums and products: a rotation, a gate, scores that are scaled and
//! masked. An instruction reads and writes whole registers, so one instruction for two ops takes
//! half the time. If the first factor is the result of a function, its rounding moves into the pair
//! as well.
//!
//! Invariant: every value is rounded where its op would round it, so only the number of passes
//! changes.

use ferrane_host::rounded;

use super::member::{Member, MemberSource};
use crate::ir::{Binary, Elementwise};

/// The operations that a pair supports.
fn simple(op: Elementwise) -> Option<rounded::Binary> {
    match op {
        Elementwise::Binary(Binary::Add) => Some(rounded::Binary::Add),
        Elementwise::Binary(Binary::Sub) => Some(rounded::Binary::Sub),
        Elementwise::Binary(Binary::Mul) => Some(rounded::Binary::Mul),
        _ => None,
    }
}

/// The operands that may be the first one.
fn firsts(op: rounded::Binary) -> &'static [usize] {
    if op == rounded::Binary::Sub { &[0] } else { &[0, 1] }
}

/// Joins pairs of members. Members in `stored` are read outside of the group and are kept; their
/// indices are updated.
pub(super) fn join(members: &mut Vec<Member>, stored: &mut [usize]) {
    let mut uses = vec![0usize; members.len()];
    for member in members.iter() {
        for source in &member.from[..member.arity] {
            if let MemberSource::Member(i) = source {
                uses[*i] += 1;
            }
        }
    }
    let mut gone = vec![false; members.len()];
    for at in 0..members.len() {
        let Some(second) = simple(members[at].op).filter(|_| members[at].round) else { continue };
        // A member that no other op reads.
        let own = |source: MemberSource| match source {
            MemberSource::Member(i) if uses[i] == 1 && !stored.contains(&i) && members[i].round => Some(i),
            _ => None,
        };
        let found = firsts(second).iter().find_map(|&k| {
            let i = own(members[at].from[k])?;
            Some((k, i, simple(members[i].op)?))
        });
        let Some((k, i, first)) = found else { continue };
        let [mut a, mut b, _] = members[i].from;
        let c = members[at].from[1 - k];
        let function = |source: MemberSource| {
            own(source).filter(|&i| matches!(members[i].op, Elementwise::Unary(f) if !f.exact()))
        };
        let raw = firsts(first).iter().find_map(|&k| Some((k, function(members[i].from[k])?)));
        if let Some((k, function)) = raw {
            members[function].round = false;
            if k == 1 {
                (a, b) = (b, a);
            }
        }
        gone[i] = true;
        let op = Elementwise::Pair([first, second], raw.is_some());
        members[at] = Member { op, from: [a, b, c], arity: 3, ..members[at].clone() };
    }
    let mut now = vec![0; members.len()];
    let mut count = 0;
    for (now, gone) in now.iter_mut().zip(&gone) {
        *now = count;
        count += usize::from(!gone);
    }
    let mut at = 0;
    members.retain(|_| {
        at += 1;
        !gone[at - 1]
    });
    for source in members.iter_mut().flat_map(|m| &mut m.from) {
        if let MemberSource::Member(i) = source {
            *i = now[*i];
        }
    }
    stored.iter_mut().for_each(|i| *i = now[*i]);
}
