//! Power, states, temperatures and load of this computer.
//!
//! ```
//! use ferrane::sensors::{self, Domain};
//!
//! let mut sensors = sensors::open();
//! let before = sensors.read();
//! // What is to be measured runs here.
//! let interval = sensors.read().since(&before);
//! match interval.power(Domain::Ane) {
//!     Some(power) => println!("the engine drew {:.2} W", power.watts),
//!     None => println!("the power of the engine is unknown here"),
//! }
//! ```

pub use ferrane_sensors::*;

/// Opens all sensors of this computer. It never fails: what cannot be read is listed, with the
/// reason, in each [`SensorReading`].
pub fn open() -> Sensors {
    let mut sensors = Sensors::of_this_computer();
    ferrane_ane::sensors().into_iter().for_each(|sensor| sensors.add(sensor));
    sensors
}
