//! Sensors of a Mac: energy counters and states of IOReport, temperatures of IOHID.
//!
//! Both are private. Their C functions are looked up by name at run time, when the sensors are
//! opened; a system without one of them loses these readings, with the reason in
//! [`SensorReading::unread`](ferrane_sensors::SensorReading::unread), and nothing else. This is
//! also why no crate that offers them is linked: macmon, and sysinfo with its feature `component`,
//! bind the functions when a program starts, which does not start where one is missing, and no fake
//! can replace them in tests.
//!
//! Which channels are read, and what public programs know about them, is in `channels`. The two
//! energy counters of the engine are two sources, `IOReport Energy Model` and `IOReport PMP /
//! Energy Counters`; a machine may have one, both or none.
//!
//! # Limits
//!
//! - On macOS 27 the counters of the CPU and the engine in `Energy Model` may stand still for
//!   programs without Apple's entitlement (macmon's `metrics.rs`;
//!   <https://github.com/metaspartan/mactop/pull/72> and
//!   <https://github.com/metaspartan/mactop/pull/76>), and `PMP` may have no channels for programs
//!   that do not run as root. A counter that stands still reads as no energy, like that of an idle
//!   unit.
//! - An energy counter is a model of the system's, not a measurement of Ferrane's.
//! - States named `VMIN` or `F1` are requests of the engine for bandwidth, not its use.
//! - None of it has met a Mac: it is tested over the fake framework.
//!
//! `unsafe` is in `calls`.

#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod calls;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod channels;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
pub(crate) mod functions;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod iohid;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod ioreport;

use ferrane_sensors::Sensor;

#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
pub use functions::{ReportFunctions, ThermalFunctions};

/// The sensors of this Mac; none on another system, unless one was injected.
///
/// A sensor that cannot be opened is among them: its readings say why.
pub fn sensors() -> Vec<Box<dyn Sensor>> {
    #[cfg(target_vendor = "apple")]
    return match crate::system::find() {
        Ok(system) => opened::of(system),
        Err(error) => opened::none(error.message()),
    };
    #[cfg(not(target_vendor = "apple"))]
    {
        #[cfg(feature = "objc-runtime")]
        if let Some(system) = crate::system::find() {
            return opened::of(system);
        }
        Vec::new()
    }
}

#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod opened {
    use ferrane_device::Result;
    use ferrane_sensors::{Sensor, SensorReading, Unread};

    use super::calls::{ReportCalls, ThermalCalls};
    use super::iohid::{self, ThermalSensor};
    use super::ioreport::{self, ReportSensor};
    use crate::system::System;

    /// A sensor that could not be opened.
    struct LostSensor {
        name: &'static str,
        what: &'static str,
        why: String,
    }

    impl Sensor for LostSensor {
        fn name(&self) -> &str {
            self.name
        }

        fn read(&mut self, reading: &mut SensorReading) {
            reading.unread.push(Unread { what: self.what.into(), why: self.why.clone() });
        }
    }

    fn lost(name: &'static str, what: &'static str, why: &str) -> Box<dyn Sensor> {
        Box::new(LostSensor { name, what, why: why.to_string() })
    }

    fn or_lost<S: Sensor + 'static>(sensor: Result<S>, name: &'static str, what: &'static str) -> Box<dyn Sensor> {
        match sensor {
            Ok(sensor) => Box::new(sensor),
            Err(error) => lost(name, what, error.message()),
        }
    }

    pub(super) fn of(system: &System) -> Vec<Box<dyn Sensor>> {
        let reports = (system.reports)().and_then(|functions| ReportSensor::open(ReportCalls(functions)));
        let thermal = (system.thermal)().and_then(|functions| ThermalSensor::open(ThermalCalls(functions)));
        vec![or_lost(reports, ioreport::NAME, ioreport::WHAT), or_lost(thermal, iohid::NAME, iohid::WHAT)]
    }

    #[cfg(target_vendor = "apple")]
    pub(super) fn none(why: &str) -> Vec<Box<dyn Sensor>> {
        vec![lost(ioreport::NAME, ioreport::WHAT, why), lost(iohid::NAME, iohid::WHAT, why)]
    }
}
