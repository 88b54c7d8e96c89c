//! Reads values that may differ for each device: one value, or a list such as `0=4GiB,1=50%`.

use core::str::FromStr;

use super::device::{DeviceIdentity, DeviceName};
use super::faults::{Fault, ValueError};
use super::values::number;
use crate::units::Setting;

/// One value for every device, or values for some of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerDevice<T> {
    /// Devices with their own value.
    pub named: Vec<(DeviceName, T)>,
    /// The value of every other device, if there is one.
    pub others: Option<T>,
}

impl<T> Default for PerDevice<T> {
    fn default() -> Self {
        Self { named: Vec::new(), others: None }
    }
}

impl<T: Copy> PerDevice<T> {
    /// Makes a list with one value for every device.
    #[must_use]
    pub fn everywhere(value: T) -> Self {
        Self { named: Vec::new(), others: Some(value) }
    }

    /// Returns the meaning of the list in an operator's file, where numbers are bus numbers.
    #[must_use]
    pub(super) fn of_operator(self) -> Self {
        let named = self.named.into_iter().map(|(name, value)| (name.of_operator(), value));
        Self { named: named.collect(), ..self }
    }

    /// Returns true if the list names a device by its bus number.
    pub(super) fn counts_on_bus(&self) -> bool {
        self.named.iter().any(|(name, _)| matches!(name, DeviceName::Bus(_)))
    }

    /// Returns all values of the list.
    pub fn values(&self) -> impl Iterator<Item = T> {
        self.named.iter().map(|(_, value)| *value).chain(self.others)
    }

    /// Returns the names that match none of `devices`.
    #[must_use]
    pub fn absent(&self, devices: &[DeviceIdentity]) -> Vec<DeviceName> {
        let is_there = |name: &DeviceName| devices.iter().any(|device| name.matches(device));
        self.named.iter().map(|(name, _)| *name).filter(|name| !is_there(name)).collect()
    }

    /// Returns the values for a device. They are the values of the items that name it, or else the value for all other
    /// devices.
    pub(super) fn of(&self, device: &DeviceIdentity) -> Vec<T> {
        let named: Vec<T> =
            self.named.iter().filter(|(name, _)| name.matches(device)).map(|(_, value)| *value).collect();
        if named.is_empty() { self.others.into_iter().collect() } else { named }
    }
}

/// Reads a value, or a list such as `0=VALUE,GPU-<uuid>=VALUE`.
impl<T: FromStr<Err = Fault>> FromStr for PerDevice<T> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if !text.contains(['=', ',']) {
            return Ok(Self { named: Vec::new(), others: Some(text.parse()?) });
        }
        if let Some(point) = decimal_comma(text).filter(|point| point.parse::<T>().is_ok()) {
            return Err(Fault::DecimalComma(point).into());
        }
        let mut named = Vec::new();
        for item in text.split(',').map(str::trim_ascii) {
            let read = list_item(item, &named);
            named.push(read.map_err(|fault| ValueError { part: Some(item.to_owned()), fault })?);
        }
        Ok(Self { named, others: None })
    }
}

/// Writes `0=4GiB,1=50%`, or the value for all devices. Only HAMi's variables can set values for some devices and another
/// value for the other devices. The value for the other devices is then written with `others=`.
impl<T: Setting> Setting for PerDevice<T> {
    fn setting(&self) -> String {
        let named = self.named.iter().map(|(name, value)| format!("{name}={}", value.setting()));
        let others = self.others.iter().map(|value| {
            if self.named.is_empty() { value.setting() } else { format!("others={}", value.setting()) }
        });
        named.chain(others).collect::<Vec<_>>().join(",")
    }
}

/// Returns a number with a decimal comma in its form with a point.
fn decimal_comma(text: &str) -> Option<String> {
    let text = text.trim_ascii();
    let (whole, rest) = text.split_once(',')?;
    let is_number = number(whole, Fault::NotAnItem, Fault::NotAnItem).is_ok();
    (is_number && rest.starts_with(|first: char| first.is_ascii_digit())).then(|| format!("{whole}.{rest}"))
}

/// Reads `device=value`. No earlier item of the list may name the device.
fn list_item<T: FromStr<Err = Fault>>(
    item: &str,
    earlier: &[(DeviceName, T)],
) -> Result<(DeviceName, T), Fault> {
    let (name, value) = item.split_once('=').ok_or(Fault::NotAnItem)?;
    let name: DeviceName = name.trim_ascii().parse()?;
    if earlier.iter().any(|(other, _)| other.overlaps(&name)) {
        return Err(Fault::DeviceTwice);
    }
    Ok((name, value.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sizes::Quota;
    use crate::units::Permille;

    #[test]
    fn a_comma_between_digits_is_answered_with_a_point_where_that_is_right() {
        let fault = |text: &str| text.parse::<PerDevice<Permille>>().unwrap_err().fault;
        assert_eq!(fault(" 12,5 "), Fault::DecimalComma("12.5".to_owned()));
        for text in ["12,55", "30,50", "12,", ",5", "12,5,5", "0=12,5"] {
            assert_eq!(fault(text), Fault::NotAnItem, "{text}");
        }
        let size = "4,5GiB".parse::<PerDevice<Quota>>().unwrap_err();
        assert_eq!(size, Fault::DecimalComma("4.5GiB".to_owned()).into());
        assert_eq!("4,8".parse::<PerDevice<Quota>>().unwrap_err().fault, Fault::NotAnItem);
    }

    #[test]
    fn a_list_cannot_say_two_things_about_one_device() {
        for text in ["0=1g,0=2g", "0=1g,00=1g", "GPU-89=1g,GPU-8932=2g", "MIG-89=1g,GPU-89=1g"] {
            let error = text.parse::<PerDevice<Quota>>().unwrap_err();
            assert_eq!(error.fault, Fault::DeviceTwice, "{text}");
        }
        for text in ["4g,1=2g", "0=1g,4g", ",", "=", "0=", "=4g", "0=1g;1=2g", "0=1g=2g", "0=0", "0=1g,,1=2g"]
        {
            assert!(text.parse::<PerDevice<Quota>>().is_err(), "{text}");
        }
    }
}
