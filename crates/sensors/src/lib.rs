//! What a computer reports about itself while it works.
//!
//! [`Sensors`] reads energy counters, residencies of performance states, temperatures and load. A
//! [`SensorReading`] holds counters, which say nothing by themselves; an [`Interval`] between two
//! readings holds watts, shares of time and joules.
//!
//! ```
//! use ferrane_sensors::{Domain, Sensors};
//!
//! let mut sensors = Sensors::of_this_computer();
//! let before = sensors.read();
//! std::thread::sleep(std::time::Duration::from_millis(50));
//! let interval = sensors.read().since(&before);
//! match interval.power(Domain::Package) {
//!     Some(power) => println!("{:.1} W, from {}", power.watts, power.source),
//!     None => println!("unknown: {:?}", interval.unread),
//! }
//! ```
//!
//! A [`History`] adds up many intervals in bounded memory and writes them as text of OpenMetrics;
//! [`measure`] does so while a closure runs.
//!
//! On Linux, energy comes from RAPL ([`rapl`]). The energy of a Mac's engine comes from a
//! [`Sensor`] that `ferrane-ane` offers. What has no source stays unknown and is never zero:
//! [`Interval::unread`] states why.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod history;
mod load;
mod openmetrics;
pub mod rapl;
mod reading;

pub use history::{CURVE, History, MeasuredTime, PeakPower, measure};
pub use load::{Core, Load};
pub use reading::{
    Domain, Energy, Interval, Power, Residency, SensorReading, Shares, Temperature, Unread, energy_text,
};

/// Something that can be read again and again.
pub trait Sensor: Send {
    /// What it is, for messages: `RAPL`, `IOReport`.
    fn name(&self) -> &str;

    /// Adds its counters and temperatures to a reading. What it cannot read now it adds to
    /// [`SensorReading::unread`].
    fn read(&mut self, reading: &mut SensorReading);
}

/// The sensors of a computer.
pub struct Sensors {
    sources: Vec<Box<dyn Sensor>>,
    load: load::Meter,
}

impl Sensors {
    /// The sensors that work without a private framework.
    pub fn of_this_computer() -> Sensors {
        match cfg!(target_os = "linux") {
            true => Sensors::with(vec![Box::new(rapl::Rapl::of_this_computer())]),
            false => Sensors::with(Vec::new()),
        }
    }

    /// The load of this computer and these sources.
    pub fn with(sources: Vec<Box<dyn Sensor>>) -> Sensors {
        Sensors { sources, load: load::Meter::new() }
    }

    /// Reads a further source from now on, after those that are there.
    pub fn add(&mut self, source: Box<dyn Sensor>) {
        self.sources.push(source);
    }

    /// The names of the sources.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|source| source.name())
    }

    /// Reads everything now. The load is that since a reading before, so the first has none.
    pub fn read(&mut self) -> SensorReading {
        let mut reading = SensorReading::now();
        for source in &mut self.sources {
            source.read(&mut reading);
        }
        self.load.read(&mut reading);
        reading
    }
}
