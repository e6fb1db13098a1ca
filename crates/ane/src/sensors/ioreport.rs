//! The sensor over IOReport.

use std::collections::HashMap;

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_sensors::{Domain, Energy, Residency, Sensor, SensorReading, Unread};
use objc2::rc::autoreleasepool;

use super::calls::{CHANNELS, ReportCalls, ReportChannel, Subscription, channels};
use super::channels::{ChannelUse, SIMPLE, STATE, channel_use, is_group, joules, label};
use crate::bind::Object;
use crate::bind::foundation::{MutableList, MutableMap, text};

/// What the sensor calls itself.
pub(super) const NAME: &str = "IOReport";

/// What is unknown without it.
pub(super) const WHAT: &str = "energy and states of the Neural Engine, processor, GPU and memory";

/// The counters of IOReport since it was opened.
pub(super) struct ReportSensor {
    calls: ReportCalls,
    subscription: Subscription,
    first: Object,
    /// Whether a channel meters the engine.
    has_engine: bool,
}

/// A channel with its names.
struct NamedChannel {
    channel: ReportChannel,
    purpose: ChannelUse,
    label: String,
}

impl ReportSensor {
    /// Subscribes to what is read, and takes the first sample.
    pub(super) fn open(calls: ReportCalls) -> Result<ReportSensor> {
        autoreleasepool(|_| {
            let all = calls.all()?;
            let mut wanted = Vec::new();
            let mut has_engine = false;
            for channel in channels(&all)? {
                let Some(named) = named(&calls, channel)? else { continue };
                has_engine |= matches!(named.purpose, ChannelUse::Energy(Domain::Ane, _));
                wanted.push(named.channel.object().clone());
            }
            if wanted.is_empty() {
                let why = format!("IOReport has {} channels here, and none of them is known", channels(&all)?.len());
                return Err(Error::new(ErrorKind::Unavailable, why));
            }
            // The programs that are known to work give mutable objects.
            let pointers: Vec<_> = wanted.iter().map(Object::as_ptr).collect();
            let list = MutableList::with_objects(pointers.as_ptr(), pointers.len())??;
            let request = MutableMap::with_map(&all)??;
            request.set(&list, &text(CHANNELS)?)?;
            let subscription = calls.subscribe(&request)?;
            let first = calls.sample(&subscription)?;
            Ok(ReportSensor { calls, subscription, first, has_engine })
        })
    }

    fn add(&self, reading: &mut SensorReading) -> Result<()> {
        let now = self.calls.sample(&self.subscription)?;
        let delta = self.calls.delta(&self.first, &now)?;
        let mut seen = HashMap::new();
        for channel in channels(&delta)? {
            let Some(mut named) = named(&self.calls, channel)? else { continue };
            let source = match named.purpose {
                ChannelUse::Energy(_, source) | ChannelUse::States(source) => source,
            };
            // Channels of one name are distinguished by their order.
            let count = seen.entry((source, named.label.clone())).or_insert(0);
            *count += 1;
            if *count > 1 {
                named.label = format!("{} ({count})", named.label);
            }
            match named.purpose {
                ChannelUse::Energy(domain, source) => self.energy(&named, domain, source, reading)?,
                ChannelUse::States(source) => self.states(&named, source, reading)?,
            }
        }
        Ok(())
    }

    fn energy(
        &self,
        NamedChannel { channel, label, .. }: &NamedChannel,
        domain: Domain,
        source: &'static str,
        reading: &mut SensorReading,
    ) -> Result<()> {
        let mut unread = |why| reading.unread.push(Unread { what: format!("energy of {label}"), why });
        let format = self.calls.format(channel)?;
        if format != SIMPLE {
            unread(format!("{source} has it in format {format}, which is no single number"));
            return Ok(());
        }
        let unit = self.calls.unit(channel)?;
        let Some(joules) = joules(&unit) else {
            unread(format!("{source} counts it in `{}`, which is no known unit of energy", unit.trim()));
            return Ok(());
        };
        let count = self.calls.integer(channel)?;
        if count < 0 {
            unread(format!("{source} gave {count}: the counter was reset, or is no number"));
            return Ok(());
        }
        let joules = count as f64 * joules;
        reading.energy.push(Energy { domain, channel: label.clone(), source, joules });
        Ok(())
    }

    fn states(
        &self,
        NamedChannel { channel, label, .. }: &NamedChannel,
        source: &'static str,
        reading: &mut SensorReading,
    ) -> Result<()> {
        let mut unread = |why| reading.unread.push(Unread { what: format!("states of {label}"), why });
        let format = self.calls.format(channel)?;
        if format != STATE {
            unread(format!("{source} has them in format {format}, which is no list of states"));
            return Ok(());
        }
        let states = self.calls.states(channel)?;
        if let Some((state, time)) = states.iter().find(|(_, time)| *time < 0) {
            unread(format!("{source} gave {time} for `{state}`: the counter was reset"));
            return Ok(());
        }
        let states = states.into_iter().map(|(state, time)| (state, time as f64)).collect();
        reading.residency.push(Residency { unit: label.clone(), source, states });
        Ok(())
    }
}

/// A channel with its names; `None` if it is not read.
fn named(calls: &ReportCalls, channel: ReportChannel) -> Result<Option<NamedChannel>> {
    let group = calls.group(&channel)?;
    if !is_group(&group) {
        return Ok(None);
    }
    let (sub_group, name) = (calls.sub_group(&channel)?, calls.name(&channel)?);
    let purpose = channel_use(&group, &sub_group, &name);
    Ok(purpose.map(|purpose| NamedChannel { channel, purpose, label: label(&group, &name) }))
}

impl Sensor for ReportSensor {
    fn name(&self) -> &str {
        NAME
    }

    fn read(&mut self, reading: &mut SensorReading) {
        if let Err(error) = autoreleasepool(|_| self.add(reading)) {
            reading.unread.push(Unread { what: WHAT.into(), why: error.message().to_string() });
        }
        if !self.has_engine {
            let why = "IOReport has no channel for it here; a virtual machine has none".into();
            reading.unread.push(Unread { what: "energy of the Neural Engine".into(), why });
        }
    }
}
