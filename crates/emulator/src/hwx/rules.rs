//! Which registers a task may set.
//!
//! A task runs only if every bit that it sets is one that the interpreter reads, one that changes
//! no result (caching, scheduling, counters), or one that tasks of the same kind always set. So an
//! undescribed bit refuses the program instead of giving a wrong result.

use ferrane_hwx::registers::{Generation, RecordFormat};
use ferrane_hwx::task::TaskView;

use ferrane_device::Result;

use super::task::Task;

/// The values that a register may hold.
struct Rule {
    /// Address of the first register.
    address: u32,
    /// How many consecutive registers the rule covers.
    count: u32,
    /// Names of fields that are read or change no result; `*` for all bits.
    free: &'static str,
    /// Allowed values of all other bits together, besides 0.
    rest: &'static [u32],
}

const fn rule(address: u32, count: u32, free: &'static str, rest: &'static [u32]) -> Rule {
    Rule { address, count, free, rest }
}

/// Fields of a source's or result's configuration in L2: origin, dependencies, shared memory.
const L2_CFG: &str = "SourceType ResultType Dependent AliasConvSrc AliasConvRslt AliasPlanarSrc AliasPlanarRslt DMAFmt \
                      DMAInterleave L2BfrMode";
const PE_BROADCAST: &str = "Src1Broadcast Src2Broadcast Src1Transpose Src2Transpose ResultTranspose";
const NE_KERNEL: &str = "KernelFmt PalettizedBits Align";
const NE_MAC: &str = "OpMode KernelMode BinaryPoint NonlinearMode";

/// Task types of H13, with the two bits below them.
const H13_TYPES: &[u32] = &[1, 2, 3, 0x11, 0x12, 0x13, 0x21, 0x22, 0x23, 0x31, 0x32, 0x33, 0x51, 0x52, 0x53];

/// H13 (spec: hwx.md 2.2: the table, observed values).
const H13: &[Rule] = &[
    rule(0x1f800, 1, "", &[0x40]),
    rule(0x1f808, 16, "En CrH CacheHint PrefetchParticipateEn", &[]),
    rule(0x1f848, 16, "*", &[]),
    rule(0x1f888, 16, "*", &[]),
    // Streams of biases, scales, palettes and tables: off.
    rule(0x1f8c8, 4, "CacheHint", &[]),
    rule(0x1f8d8, 8, "*", &[]),
    rule(0x0, 1, "*", &[]),
    rule(0x4, 1, "", &[1]),
    rule(0x8, 3, "*", &[]),
    rule(0x14, 1, "*", &[]),
    rule(0x18, 1, "", &[1]),
    rule(0x1c, 1, "Kw Kh OCGSize Sx Sy Px Py", &[0x5000_0000]),
    rule(0x20, 1, "", &[0x2041]),
    rule(0x24, 1, "NumGroups UnicastEn UnicastCin", &[]),
    rule(0x28, 1, "*", &[]),
    rule(0x2c, 1, "*", &[]),
    rule(0x30, 1, PE_BROADCAST, &[]),
    // Bits 7:4 are read: the task type, as on H16. Bits 1:0 are set where a task begins or ends a
    // chain.
    rule(
        0x34,
        1,
        "SmallSourceMode ShPref ShMin ShMax ActiveNE ContextSwitchIn ContextSwitchOut AccDoubleBufEn",
        H13_TYPES,
    ),
    rule(0x38, 2, "*", &[]),
    rule(0x13800, 2, "*", &[]),
    rule(0x13808, 5, "*", &[]),
    rule(0x13820, 4, "*", &[]),
    rule(0x13838, 2, "*", &[]),
    rule(0x13840, 1, "", &[0x100]),
    rule(0x4800, 1, "InputReLU PaddingMode", &[]),
    rule(0x4804, 1, L2_CFG, &[0x100_0000]),
    rule(0x4808, 10, "*", &[]),
    rule(0x4830, 1, L2_CFG, &[]),
    rule(0x4834, 5, "*", &[]),
    rule(0x8800, 4, "*", &[]),
    rule(0xc800, 1, NE_KERNEL, &[]),
    rule(0xc804, 1, NE_MAC, &[1 << 20]),
    rule(0xc810, 1, "PostScale", &[]),
    rule(0x17800, 1, "*", &[]),
    rule(0x17804, 6, "*", &[]),
];

/// H16 and H17 (spec: hwx.md 2.5).
const H16: &[Rule] = &[
    rule(0x0, 4, "*", &[]),
    rule(0x10, 1, "", &[1]),
    rule(0x14, 3, "*", &[]),
    rule(0x20, 1, "", &[1]),
    rule(0x24, 1, "*", &[]),
    rule(0x28, 1, "Kw Kh Sx Sy Px Py", &[0x5000_0000]),
    rule(0x2c, 1, "", &[0x2041]),
    rule(0x30, 1, "UnicastEn UnicastCin", &[]),
    rule(0x34, 1, "*", &[]),
    // How tiles of rows overlap follows from the window, which is read.
    rule(0x38, 1, "Overlap PadTop PadBottom", &[]),
    rule(0x3c, 1, "SmallSourceMode TaskType ShPref ShMin ShMax ActiveNE ResultTranspose FillLowerNEFirst", &[]),
    rule(0x40, 1, "OCGSize FatTile WUStack", &[]),
    rule(0x44, 1, "*", &[]),
    rule(0x48, 1, PE_BROADCAST, &[]),
    rule(0x4c, 1, "", &[0x10_0000]),
    rule(0x50, 1, "*", &[]),
    rule(0x4100, 1, "InputReLU PaddingMode Source2ReLU", &[]),
    rule(0x4104, 2, L2_CFG, &[0x40_0000, 0x10_0000, 0x50_0000]),
    rule(0x4110, 10, "*", &[]),
    rule(0x4148, 1, L2_CFG, &[0x40_0000, 0x10_0000, 0x50_0000]),
    rule(0x414c, 5, "*", &[]),
    rule(0x4500, 1, "*", &[]),
    rule(0x4504, 5, "*", &[]),
    rule(0x4900, 1, NE_KERNEL, &[]),
    rule(0x4904, 1, NE_MAC, &[1 << 20]),
    rule(0x4910, 1, "PostScale", &[]),
    rule(0x4d00, 2, "*", &[]),
    rule(0x4d08, 2, "", &[0xce]),
    rule(0x4d10, 12, "*", &[]),
    rule(0x4d68, 2, "*", &[]),
    rule(0x5100, 8, "*", &[]),
    rule(0x5138, 1, "*", &[]),
    rule(0x5500, 1, "*", &[]),
    rule(0x5508, 1, "*", &[]),
    rule(0x5510, 4, "*", &[]),
    rule(0x5520, 48, "*", &[]),
    // Streams of biases, scales and palettes: off. That of the table is read.
    rule(0x55e0, 1, "CacheHint UserTag", &[]),
    rule(0x55e4, 3, "*", &[]),
    rule(0x55f0, 1, "CacheHint UserTag", &[]),
    rule(0x55f4, 3, "*", &[]),
    rule(0x5600, 1, "CacheHint UserTag", &[]),
    rule(0x5604, 3, "*", &[]),
    rule(0x5610, 4, "*", &[]),
    rule(0x5900, 12, "*", &[]),
];

/// The rules of a generation; `None` if its registers are not known well enough to run a program.
fn rules(generation: &Generation) -> Option<&'static [Rule]> {
    match (generation.name, generation.record_format) {
        ("h13", RecordFormat::ByteAddressed) => Some(H13),
        ("h16" | "h17", RecordFormat::WordAddressed) => Some(H16),
        _ => None,
    }
}

/// True if programs of the generation are run.
pub(super) fn runs(generation: &Generation) -> bool {
    rules(generation).is_some()
}

/// Refuses the first register with an undescribed value.
pub(super) fn check(task: &Task<'_>) -> Result<()> {
    let fields: &TaskView<'_> = &task.fields;
    let generation = fields.generation();
    let rules = rules(generation).unwrap_or_default();
    for (&address, &word) in fields.set() {
        // Tasks of the planar engine carry settings of the convolution engines.
        let idle = fields.convolves() == Some(false) && generation.block(address).is_some_and(|b| b.name == "NE");
        if word == 0 || idle {
            continue;
        }
        let rule = rules.iter().find(|r| (r.address..r.address + 4 * r.count).contains(&address));
        let Some(rule) = rule else {
            return Err(task.refuse_at(address, "what it does to a result is not known"));
        };
        let rest = word & !free(rule, generation, address);
        if rest != 0 && !rule.rest.contains(&rest) {
            return Err(task.refuse_at(address, &format!("what the bits {rest:#x} do to a result is not known")));
        }
    }
    Ok(())
}

/// The bits of a rule's free fields.
fn free(rule: &Rule, generation: &Generation, address: u32) -> u32 {
    if rule.free == "*" {
        return u32::MAX;
    }
    let register = generation.register(address).map(|(register, _)| register);
    let names = rule.free.split_ascii_whitespace();
    names.filter_map(|name| register?.field(name)).fold(0, |bits, field| bits | field.mask())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_hwx::registers::by_name;

    #[test]
    fn rules_lie_apart_and_name_fields() {
        for name in ["h13", "h16", "h17"] {
            let generation = by_name(name).unwrap();
            let rules = rules(generation).unwrap();
            for (i, rule) in rules.iter().enumerate() {
                let end = rule.address + 4 * rule.count;
                let apart = |other: &Rule| other.address + 4 * other.count <= rule.address || end <= other.address;
                assert!(rules[i + 1..].iter().all(apart), "{name} {:#x}", rule.address);
                assert!(generation.block(rule.address).is_some(), "{name} {:#x}", rule.address);
                // A rule that frees fields frees at least one.
                let freed = free(rule, generation, rule.address);
                assert!(rule.free.is_empty() || freed != 0, "{name} {:#x}", rule.address);
            }
        }
        assert!(!runs(by_name("h14").unwrap()) && !runs(by_name("h11").unwrap()));
    }
}
