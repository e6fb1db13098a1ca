//! The private C functions as safe calls: arguments are objects of the right kind, results own
//! their references, and an exception is an error.

use std::ptr;

use ferrane_device::{Error, ErrorKind, Result};
use objc2::runtime::AnyObject;

use super::functions::{ReportFunctions, ThermalFunctions};
use crate::bind::foundation::{List, Map, MutableMap, Text};
use crate::bind::{Object, Wrap as _, catch, owned, retained};

/// The kind of event with a temperature (`kIOHIDEventTypeTemperature` of IOHIDFamily).
const TEMPERATURE: u8 = 15;

fn call<R>(name: &str, function: impl FnOnce() -> R) -> Result<R> {
    catch(function)
        .map_err(|raised| Error::new(ErrorKind::System, format!("{name} raised {}: {}", raised.name, raised.reason)))
}

/// An error for a function that returned null.
fn null(name: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{name} gave nothing"))
}

/// Takes over the reference of a result.
///
/// # Safety
/// `result` must be null or an object with a reference for the caller.
unsafe fn taken(name: &str, result: Result<*mut AnyObject>) -> Result<Option<Object>> {
    // SAFETY: passes on the contract unchanged.
    result.map(|object| unsafe { owned(object) }).map_err(|e| Error::new(e.kind(), format!("{name}: {}", e.message())))
}

/// The functions of IOReport.
#[derive(Clone, Copy)]
pub(super) struct ReportCalls(pub(super) ReportFunctions);

/// A channel, which belongs to a sample or a list of channels.
pub(super) struct ReportChannel(Object);

/// A subscription, and the channels that it accepted.
pub(super) struct Subscription {
    subscription: Object,
    channels: Object,
}

impl ReportCalls {
    /// All channels of this computer.
    pub(super) fn all(&self) -> Result<Map> {
        let name = "IOReportCopyAllChannels";
        // SAFETY: the function takes two numbers and returns an object with a reference for us.
        let all = unsafe { taken(name, call(name, || (self.0.copy_all)(0, 0))) }?;
        all.ok_or_else(|| null(name))?.cast()
    }

    /// Subscribes to the channels of a dictionary.
    pub(super) fn subscribe(&self, wanted: &MutableMap) -> Result<Subscription> {
        let name = "IOReportCreateSubscription";
        let mut channels: *mut AnyObject = ptr::null_mut();
        let out = ptr::from_mut(&mut channels);
        let made = call(name, || {
            // SAFETY: a live mutable dictionary, and a pointer to write to that is valid during the
            // call.
            unsafe { (self.0.subscribe)(ptr::null(), wanted.object().as_ptr(), out, 0, ptr::null()) }
        });
        // SAFETY: the function wrote null or an object with a reference for us.
        let channels = unsafe { owned(channels) };
        // SAFETY: the function returned null or an object with a reference for us.
        let subscription = unsafe { taken(name, made) }?;
        match (subscription, channels) {
            (Some(subscription), Some(channels)) => Ok(Subscription { subscription, channels }),
            _ => Err(null(name)),
        }
    }

    /// The state of the subscribed channels now.
    pub(super) fn sample(&self, of: &Subscription) -> Result<Object> {
        let name = "IOReportCreateSamples";
        let (subscription, channels) = (of.subscription.as_ptr(), of.channels.as_ptr());
        // SAFETY: a live subscription and its channels; the result has a reference for us.
        let sample = unsafe { taken(name, call(name, || (self.0.samples)(subscription, channels, ptr::null()))) }?;
        sample.ok_or_else(|| null(name))
    }

    /// What was counted between two samples.
    pub(super) fn delta(&self, earlier: &Object, later: &Object) -> Result<Map> {
        let name = "IOReportCreateSamplesDelta";
        let (earlier, later) = (earlier.as_ptr(), later.as_ptr());
        // SAFETY: two live samples of one subscription; the result has a reference for us.
        let delta = unsafe { taken(name, call(name, || (self.0.delta)(earlier, later, ptr::null()))) }?;
        delta.ok_or_else(|| null(name))?.cast()
    }

    /// The group of a channel; empty if it has none.
    pub(super) fn group(&self, channel: &ReportChannel) -> Result<String> {
        // SAFETY: a live channel; the string belongs to it.
        text(call("IOReportChannelGetGroup", || unsafe { (self.0.group)(channel.0.as_ptr()) })?, channel)
    }

    /// The subgroup of a channel; empty if it has none.
    pub(super) fn sub_group(&self, channel: &ReportChannel) -> Result<String> {
        // SAFETY: a live channel; the string belongs to it.
        text(call("IOReportChannelGetSubGroup", || unsafe { (self.0.sub_group)(channel.0.as_ptr()) })?, channel)
    }

    /// The name of a channel; empty if it has none.
    pub(super) fn name(&self, channel: &ReportChannel) -> Result<String> {
        // SAFETY: a live channel; the string belongs to it.
        text(call("IOReportChannelGetChannelName", || unsafe { (self.0.name)(channel.0.as_ptr()) })?, channel)
    }

    /// The unit of a channel; empty if it has none.
    pub(super) fn unit(&self, channel: &ReportChannel) -> Result<String> {
        // SAFETY: a live channel; the string belongs to it.
        text(call("IOReportChannelGetUnitLabel", || unsafe { (self.0.unit)(channel.0.as_ptr()) })?, channel)
    }

    /// The format of a channel.
    pub(super) fn format(&self, channel: &ReportChannel) -> Result<u8> {
        // SAFETY: a live channel.
        call("IOReportChannelGetFormat", || unsafe { (self.0.format)(channel.0.as_ptr()) })
    }

    /// The number of a channel with one number.
    pub(super) fn integer(&self, channel: &ReportChannel) -> Result<i64> {
        // SAFETY: a live channel.
        call("IOReportSimpleGetIntegerValue", || unsafe { (self.0.integer)(channel.0.as_ptr(), 0) })
    }

    /// The names of a channel's states, and the time in each.
    pub(super) fn states(&self, channel: &ReportChannel) -> Result<Vec<(String, i64)>> {
        let at = channel.0.as_ptr();
        // SAFETY: a live channel.
        let count = call("IOReportStateGetCount", || unsafe { (self.0.state_count)(at) })?;
        let state = |index| {
            // SAFETY: a live channel and the index of one of its states; the string belongs to it.
            let name = call("IOReportStateGetNameForIndex", || unsafe { (self.0.state_name)(at, index) })?;
            // SAFETY: a live channel and the index of one of its states.
            let time = call("IOReportStateGetResidency", || unsafe { (self.0.residency)(at, index) })?;
            Ok((text(name, channel)?, time))
        };
        (0..count).map(state).collect()
    }
}

/// A string that belongs to a channel; empty for null and for what is no string.
fn text(string: *mut AnyObject, _owner: &ReportChannel) -> Result<String> {
    // SAFETY: null, or an object that the channel keeps alive; `_owner` keeps the channel alive.
    match unsafe { retained(string) }.map(Object::cast::<Text>) {
        Some(Ok(text)) => text.read(),
        _ => Ok(String::new()),
    }
}

/// The channels of a dictionary of IOReport; none if it has no list of them.
pub(super) fn channels(of: &Map) -> Result<Vec<ReportChannel>> {
    match of.get(&crate::bind::foundation::text(CHANNELS)?)? {
        None => Ok(Vec::new()),
        Some(list) => Ok(list.cast::<List>()?.elements()?.into_iter().map(ReportChannel).collect()),
    }
}

/// The key of the list of channels in dictionaries of IOReport.
pub(super) const CHANNELS: &str = "IOReportChannels";

impl ReportChannel {
    pub(super) fn object(&self) -> &Object {
        &self.0
    }
}

/// The functions of IOHID.
#[derive(Clone, Copy)]
pub(super) struct ThermalCalls(pub(super) ThermalFunctions);

/// A client of the event system.
pub(super) struct EventClient(Object);

/// A service of the event system: a sensor.
pub(super) struct EventService(Object);

impl ThermalCalls {
    /// A client of the services with these properties.
    pub(super) fn client(&self, properties: &Map) -> Result<EventClient> {
        let name = "IOHIDEventSystemClientCreate";
        // SAFETY: null is the default allocator; the result has a reference for us.
        let client = unsafe { taken(name, call(name, || (self.0.create)(ptr::null()))) }?;
        let client = client.ok_or_else(|| null(name))?;
        // SAFETY: a live client and a dictionary, which the function copies or retains.
        call("IOHIDEventSystemClientSetMatching", || unsafe {
            (self.0.matching)(client.as_ptr(), properties.object().as_ptr());
        })?;
        Ok(EventClient(client))
    }

    /// The services that are there now.
    pub(super) fn services(&self, client: &EventClient) -> Result<Vec<EventService>> {
        let name = "IOHIDEventSystemClientCopyServices";
        // SAFETY: a live client; the result has a reference for us.
        let services = unsafe { taken(name, call(name, || (self.0.services)(client.0.as_ptr()))) }?;
        let services = services.ok_or_else(|| null(name))?.cast::<List>()?;
        Ok(services.elements()?.into_iter().map(EventService).collect())
    }

    /// A property of a service that is a string; `None` if it has none.
    pub(super) fn property(&self, service: &EventService, key: &Text) -> Result<Option<String>> {
        let name = "IOHIDServiceClientCopyProperty";
        let (at, key) = (service.0.as_ptr(), key.object().as_ptr());
        // SAFETY: a live service and a string; the result has a reference for us.
        let value = unsafe { taken(name, call(name, || (self.0.property)(at, key))) }?;
        value.and_then(|value| value.cast::<Text>().ok()).map(|text| text.read()).transpose()
    }

    /// The temperature of a service in °C; `None` if it has none now.
    pub(super) fn celsius(&self, service: &EventService) -> Result<Option<f64>> {
        let name = "IOHIDServiceClientCopyEvent";
        let at = service.0.as_ptr();
        // SAFETY: a live service; the result has a reference for us.
        let event = unsafe { taken(name, call(name, || (self.0.event)(at, i64::from(TEMPERATURE), 0, 0))) }?;
        let Some(event) = event else { return Ok(None) };
        // A field is its event's kind in the upper half, and an index.
        let field = u32::from(TEMPERATURE) << 16;
        // SAFETY: a live event, and a field of its kind.
        call("IOHIDEventGetFloatValue", || unsafe { (self.0.value)(event.as_ptr(), field) }).map(Some)
    }
}
