//! The sensor over IOHID's event system.

use ferrane_device::Result;
use ferrane_sensors::{Sensor, SensorReading, Temperature, Unread};
use objc2::rc::autoreleasepool;

use super::calls::{EventClient, ThermalCalls};
use crate::bind::Wrap as _;
use crate::bind::foundation::{Text, map, number, text};

/// What the sensor calls itself.
pub(super) const NAME: &str = "IOHID";

/// What is unknown without it.
pub(super) const WHAT: &str = "temperatures";

/// Apple's page of usages, and the usage of a temperature sensor on it, as macmon and sysinfo match
/// them.
const MATCHING: [(&str, u64); 2] = [("PrimaryUsagePage", 0xff00), ("PrimaryUsage", 5)];

/// The highest temperature that is one, in °C; macmon has the same.
const HIGHEST: f64 = 150.0;

/// The temperature sensors of IOHID.
pub(super) struct ThermalSensor {
    calls: ThermalCalls,
    client: EventClient,
    product: Text,
}

impl ThermalSensor {
    pub(super) fn open(calls: ThermalCalls) -> Result<ThermalSensor> {
        autoreleasepool(|_| {
            let entries = MATCHING.map(|(key, value)| Ok((key, number(value)?.object().clone())));
            let properties = map(entries.into_iter().collect::<Result<Vec<_>>>()?)?;
            let client = calls.client(&properties)?;
            Ok(ThermalSensor { calls, client, product: text("Product")? })
        })
    }

    fn add(&self, reading: &mut SensorReading) -> Result<()> {
        let begin = reading.temperatures.len();
        for service in self.calls.services(&self.client)? {
            let Some(sensor) = self.calls.property(&service, &self.product)? else { continue };
            let Some(celsius) = self.calls.celsius(&service)? else { continue };
            if celsius > 0.0 && celsius <= HIGHEST {
                reading.temperatures.push(Temperature { sensor, celsius });
            }
        }
        // The system's order changes from call to call.
        reading.temperatures[begin..].sort_by(|a, b| a.sensor.cmp(&b.sensor));
        Ok(())
    }
}

impl Sensor for ThermalSensor {
    fn name(&self) -> &str {
        NAME
    }

    fn read(&mut self, reading: &mut SensorReading) {
        let before = reading.temperatures.len();
        let why = match autoreleasepool(|_| self.add(reading)) {
            Err(error) => error.message().to_string(),
            Ok(()) if reading.temperatures.len() == before => "IOHID has no temperature sensor that works here".into(),
            Ok(()) => return,
        };
        reading.unread.push(Unread { what: WHAT.into(), why });
    }
}
