//! The C functions of IOReport, over counters that move when the fake engine evaluates.
//!
//! The channels are those of no one machine: each kind that public programs describe is there, and
//! what a reader must survive: an unknown unit, a counter that is no number, an energy counter with
//! states, names that are null, one name twice, and names of any length.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering};

use objc2::rc::Retained;
use objc2::runtime::{AnyObject, NSObject};
use objc2::{ClassType, DefinedClass, define_class};

use crate::foundation::{
    FakeDictionary, FakeMutableDictionary, FakeString, Object, array, dictionary, elements, make, string,
};
use crate::session::{Call, count, evaluated, frozen, has_group, subscribed};

const CHANNELS: &str = "IOReportChannels";

/// The millijoules of one evaluation.
pub const MILLIJOULES: i64 = 3;

/// The microjoules of one evaluation, as the second counter has them.
pub const MICROJOULES: i64 = 2900;

/// `kIOReportInvalidIntValue` of xnu's `IOReportTypes.h`.
const INVALID: i64 = i64::MIN;

/// The number of samples that were taken, on which the processor spends energy.
static SAMPLED: AtomicI64 = AtomicI64::new(0);

/// What a channel holds.
enum Held {
    /// Format 1.
    Number(i64),
    /// Format 2.
    States(Vec<(&'static str, i64)>),
}

/// A channel's names and its counters.
struct Template {
    names: [Option<String>; 4],
    held: Held,
}

fn number(group: &str, sub_group: &str, name: &str, unit: &str, value: i64) -> Template {
    let names = [group, sub_group, name, unit].map(|text| Some(text.to_string()));
    Template { names, held: Held::Number(value) }
}

fn states(group: &str, sub_group: &str, name: &str, states: &[(&'static str, i64)]) -> Template {
    let names = [group, sub_group, name, "24Mticks"].map(|text| Some(text.to_string()));
    Template { names, held: Held::States(states.to_vec()) }
}

/// The name of a channel that is longer than any buffer.
fn long() -> String {
    "ECPU".repeat(500)
}

fn now() -> Vec<Template> {
    let (samples, evaluations) = (SAMPLED.load(Ordering::Relaxed), evaluated());
    let model = frozen().unwrap_or(evaluations);
    let unnamed = Template { names: [None, None, None, None], held: Held::Number(1) };
    let nameless = Template { names: [Some("Energy Model".into()), None, None, None], held: Held::Number(samples) };
    let all = vec![
        number("Energy Model", "", "ANE0", "mJ", 7 + MILLIJOULES * model),
        number("Energy Model", "", "ANE1", "mJ", INVALID),
        number("Energy Model", "", "CPU Energy", "mJ     ", 900 + samples),
        number("Energy Model", "", "EACC_CPU0", "mJ", samples),
        number("Energy Model", "", "GPU Energy", "nJ", 5_000_000 * samples),
        number("Energy Model", "", "DRAM0", "uJ", 40 * evaluations),
        number("Energy Model", "", "DRAM1", "bushels", samples),
        states("Energy Model", "", "DRAM2", &[("ON", samples)]),
        unnamed,
        nameless,
        number("PMP0", "Energy Counters", "ANE", "uJ", MICROJOULES * evaluations),
        number("PMP0", "AF BW", "ANE0 RD", "events", samples),
        number("Interrupt Statistics", "First Level", "ANE0", "events", samples),
        states("SoC Stats", "Cluster Power States", "ANE0", &[("INACT", 100 * samples), ("ACT", 50 * evaluations)]),
        states("SoC Stats", "Cluster Power States", "ECPU", &[("ACT", samples)]),
        states("PMP0", "SOC Floor", "ANE-AF-BW", &[("VMIN", 10 * samples), ("VNOM", 10 * evaluations)]),
        // Starts again from zero.
        states("PMP0", "DCS Floor", "ANE-DCS-BW", &[("F1", 1000 - samples), ("F2", 0)]),
        states("ANE", "IOP State", "status", &[("Idle", samples), ("Running", evaluations)]),
        states("CPU Stats", "CPU Core Performance States", "ECPU000", &[("IDLE", 3 * samples), ("V0P0", samples)]),
        states("CPU Stats", "CPU Core Performance States", &long(), &[("IDLE", samples)]),
        number("CPU Stats", "CPU Core Performance States", "PCPU000", "24Mticks", samples),
        states("GPU Stats", "GPU Performance States", "GPUPH", &[("OFF", samples), ("P1", 0)]),
        states("GPU Stats", "GPU Performance States", "GPUPH", &[("OFF", 0), ("P1", samples)]),
    ];
    all.into_iter().filter(|channel| has_group(channel.names[0].as_deref().unwrap_or_default())).collect()
}

/// A channel in a list.
struct Channel {
    names: [Option<Retained<FakeString>>; 4],
    texts: [Option<String>; 4],
    /// Format, number, and the states with their times.
    format: u8,
    number: i64,
    states: Vec<(Retained<FakeString>, i64)>,
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "FakeReportChannel"]
    #[ivars = Channel]
    struct FakeChannel;
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "FakeReportSubscription"]
    #[ivars = Vec<[Option<String>; 4]>]
    struct FakeSubscription;
);

pub(crate) fn register() {
    let _ = (FakeChannel::class(), FakeSubscription::class());
}

fn made(template: Template) -> Retained<FakeChannel> {
    let names = template.names.each_ref().map(|text| text.as_deref().map(string));
    let (format, number, states) = match template.held {
        Held::Number(number) => (1, number, Vec::new()),
        Held::States(states) => (2, INVALID, states.into_iter().map(|(name, time)| (string(name), time)).collect()),
    };
    make!(FakeChannel, Channel { names, texts: template.names, format, number, states })
}

fn listed(channels: Vec<Retained<FakeChannel>>) -> *mut AnyObject {
    Retained::into_raw(dictionary(vec![(CHANNELS, array(channels))]))
}

/// # Safety
/// `channel` must be null or a live object.
unsafe fn channel<'a>(channel: *const AnyObject) -> Option<&'a Channel> {
    // SAFETY: null or a live object by this function's contract.
    Some(unsafe { channel.as_ref() }?.downcast_ref::<FakeChannel>()?.ivars())
}

/// # Safety
/// `list` must be null or a live object.
unsafe fn channels<'a>(list: *const AnyObject) -> Option<Vec<&'a Channel>> {
    // SAFETY: null or a live object by this function's contract.
    let list = unsafe { list.as_ref() }?;
    let found: Option<Object> = match list.downcast_ref::<FakeDictionary>() {
        Some(fixed) => fixed.get(CHANNELS),
        None => list.downcast_ref::<FakeMutableDictionary>()?.get(CHANNELS),
    };
    let found = found?;
    // SAFETY: the list keeps the objects alive, and the caller the dictionary that keeps the list.
    elements(Some(&found))?.iter().map(|object| unsafe { channel(Retained::as_ptr(object)) }).collect()
}

/// `IOReportCopyAllChannels`.
pub(crate) unsafe extern "C-unwind" fn copy_all(_: u64, _: u64) -> *mut AnyObject {
    match count(Call::CopyAllChannels) {
        Ok(()) => listed(now().into_iter().map(made).collect()),
        Err(_) => ptr::null_mut(),
    }
}

/// `IOReportCreateSubscription`: null unless the dictionary and its list are mutable.
pub(crate) unsafe extern "C-unwind" fn subscribe(
    _: *const c_void,
    wanted: *const AnyObject,
    accepted: *mut *mut AnyObject,
    _: u64,
    _: *const AnyObject,
) -> *mut AnyObject {
    // SAFETY: IOReport's contract: a live dictionary.
    let mutable = unsafe { wanted.as_ref() }.and_then(|w| w.downcast_ref::<FakeMutableDictionary>());
    if count(Call::CreateSubscription).is_err() || !mutable.is_some_and(|m| m.has_mutable_list(CHANNELS)) {
        return ptr::null_mut();
    }
    // SAFETY: as above.
    let Some(wanted) = (unsafe { channels(wanted) }) else { return ptr::null_mut() };
    let names: Vec<_> = wanted.into_iter().map(|c| c.texts.clone()).collect();
    subscribed(names.iter().map(|[_, _, name, _]| name.clone().unwrap_or_default()).collect());
    let list = now().into_iter().filter(|t| names.contains(&t.names)).map(made).collect();
    // SAFETY: IOReport's contract: a pointer that may be written to.
    unsafe { *accepted = listed(list) };
    let subscription: Retained<FakeSubscription> = make!(FakeSubscription, names);
    Retained::into_raw(subscription).cast()
}

/// `IOReportCreateSamples`: null for a subscription without its channels.
pub(crate) unsafe extern "C-unwind" fn samples(
    subscription: *const AnyObject,
    accepted: *const AnyObject,
    _: *const AnyObject,
) -> *mut AnyObject {
    // SAFETY: IOReport's contract: a live subscription.
    let subscription = unsafe { subscription.as_ref() }.and_then(|s| s.downcast_ref::<FakeSubscription>());
    // SAFETY: IOReport's contract: the live dictionary of its channels.
    let accepted = unsafe { channels(accepted) };
    let (Some(names), Some(_), Ok(())) = (subscription, accepted, count(Call::CreateSamples)) else {
        return ptr::null_mut();
    };
    SAMPLED.fetch_add(1, Ordering::Relaxed);
    let wanted = now().into_iter().filter(|t| names.ivars().contains(&t.names));
    listed(wanted.map(made).collect())
}

/// `IOReportCreateSamplesDelta`.
pub(crate) unsafe extern "C-unwind" fn delta(
    earlier: *const AnyObject,
    later: *const AnyObject,
    _: *const AnyObject,
) -> *mut AnyObject {
    // SAFETY: IOReport's contract: live samples.
    let (Some(earlier), Some(later)) = (unsafe { channels(earlier) }, unsafe { channels(later) }) else {
        return ptr::null_mut();
    };
    if count(Call::CreateSamplesDelta).is_err() || earlier.len() != later.len() {
        return ptr::null_mut();
    }
    let between = |(from, to): (&Channel, &Channel)| {
        let states = from.states.iter().zip(&to.states);
        let number = if to.number == INVALID { INVALID } else { to.number - from.number };
        let channel = Channel {
            names: to.names.clone(),
            texts: to.texts.clone(),
            format: to.format,
            number,
            states: states.map(|((_, from), (name, to))| (name.clone(), to - from)).collect(),
        };
        let channel: Retained<FakeChannel> = make!(FakeChannel, channel);
        channel
    };
    listed(earlier.into_iter().zip(later).map(between).collect())
}

/// # Safety
/// `of` must be null or a live object.
unsafe fn name(of: *const AnyObject, index: usize) -> *mut AnyObject {
    // SAFETY: null or a live object by this function's contract.
    let name = unsafe { channel(of) }.and_then(|c| c.names[index].as_ref());
    name.map_or(ptr::null_mut(), |name| Retained::as_ptr(name).cast_mut().cast())
}

/// `IOReportChannelGetGroup`.
pub(crate) unsafe extern "C-unwind" fn group(of: *const AnyObject) -> *mut AnyObject {
    // SAFETY: IOReport's contract: a live channel.
    unsafe { name(of, 0) }
}

/// `IOReportChannelGetSubGroup`.
pub(crate) unsafe extern "C-unwind" fn sub_group(of: *const AnyObject) -> *mut AnyObject {
    // SAFETY: IOReport's contract: a live channel.
    unsafe { name(of, 1) }
}

/// `IOReportChannelGetChannelName`.
pub(crate) unsafe extern "C-unwind" fn channel_name(of: *const AnyObject) -> *mut AnyObject {
    // SAFETY: IOReport's contract: a live channel.
    unsafe { name(of, 2) }
}

/// `IOReportChannelGetUnitLabel`.
pub(crate) unsafe extern "C-unwind" fn unit(of: *const AnyObject) -> *mut AnyObject {
    // SAFETY: IOReport's contract: a live channel.
    unsafe { name(of, 3) }
}

/// `IOReportChannelGetFormat`.
pub(crate) unsafe extern "C-unwind" fn format(of: *const AnyObject) -> u8 {
    // SAFETY: IOReport's contract: a live channel.
    unsafe { channel(of) }.map_or(0, |c| c.format)
}

/// `IOReportSimpleGetIntegerValue`.
pub(crate) unsafe extern "C-unwind" fn integer(of: *const AnyObject, _: i32) -> i64 {
    // SAFETY: IOReport's contract: a live channel.
    unsafe { channel(of) }.map_or(INVALID, |c| c.number)
}

/// `IOReportStateGetCount`.
pub(crate) unsafe extern "C-unwind" fn state_count(of: *const AnyObject) -> i32 {
    // SAFETY: IOReport's contract: a live channel.
    unsafe { channel(of) }.map_or(0, |c| c.states.len() as i32)
}

/// `IOReportStateGetNameForIndex`.
pub(crate) unsafe extern "C-unwind" fn state_name(of: *const AnyObject, index: i32) -> *mut AnyObject {
    // SAFETY: IOReport's contract: a live channel.
    let state = unsafe { channel(of) }.and_then(|c| c.states.get(usize::try_from(index).ok()?));
    state.map_or(ptr::null_mut(), |(name, _)| Retained::as_ptr(name).cast_mut().cast())
}

/// `IOReportStateGetResidency`.
pub(crate) unsafe extern "C-unwind" fn residency(of: *const AnyObject, index: i32) -> i64 {
    // SAFETY: IOReport's contract: a live channel.
    let state = unsafe { channel(of) }.and_then(|c| c.states.get(usize::try_from(index).ok()?));
    state.map_or(INVALID, |(_, time)| *time)
}
