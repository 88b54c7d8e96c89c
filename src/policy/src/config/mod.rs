//! Reads the configuration of a slice: from the environment and the operator's files to a checked [`Config`].
//!
//! Precedence, highest first:
//!
//! 1. the fixed operator's file;
//! 2. the file that `GPUSLICE_CONFIG` names;
//! 3. the environment.
//!
//! The highest source that sets a setting under any of its names alone decides about it. Lower sources are not read for
//! that setting. Within a source, `GPU_*` names have precedence over HAMi's names.

mod ceiling;
mod checked;
mod choices;
mod device;
mod faults;
pub mod keys;
mod layers;
mod messages;
mod misspelt;
mod per_device;
mod reading;
mod sizes;
mod sources;
mod values;

pub use ceiling::{Ceiling, Ceilings};
pub use checked::{Config, DeviceLimits, QuotaSource};
pub use choices::{Burst, CoreMeter, CorePolicy, Log, LogLevel, Priority, ReportTotal, Weight};
pub use device::{DeviceIdentity, DeviceName, UuidPrefix, gpu_uuid_text, parse_uuid_text};
pub use faults::{Fault, ValueError};
pub use layers::settings_of_file;
pub use messages::{Malformed, SourcedValue, ValueOrigin, Warning};
pub use misspelt::misspelt;
pub use per_device::PerDevice;
pub use reading::{Rejected, operator_file};
pub use sizes::{Quota, in_powers_of_1000, refuse_few_bytes};
pub use sources::{FIXED_FILE, FileRead, MAX_FILE_BYTES, MAX_VALUE_BYTES, OperatorFiles};

#[cfg(test)]
mod tests;
