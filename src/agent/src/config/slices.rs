//! The slices of the configuration.

use super::file::Entry;
use super::reading::Reading;
use gpuslice_policy::config::{CorePolicy, DeviceName, Priority, Quota, Weight, refuse_few_bytes};
use gpuslice_policy::units::Permille;
use gpuslice_slices::slot::Name;
use toml::Spanned;

/// Most slices of a configuration.
const MOST_SLICES: usize = 512;

/// A slice of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SliceConfig {
    /// The slice's name.
    pub(crate) name: Name,
    /// The slice's GPU: its number, its UUID, or the beginning of its UUID.
    pub(crate) gpu: DeviceName,
    /// Bytes of device memory that the slice may hold; `None` for all of the GPU's.
    pub(crate) memory: Option<Quota>,
    /// The slice's share of the GPU's time.
    pub(crate) cores: Permille,
    /// The policy by which the slice and others divide that time.
    pub(crate) policy: CorePolicy,
    /// The slice's weight, compared to other slices.
    pub(crate) weight: Weight,
    /// The slice's priority among the slices on its GPU.
    pub(crate) priority: Priority,
    /// The line of the file where the slice begins, for messages.
    pub(crate) line: usize,
}

/// Returns the entries that have no mistake. Two slices with the same name are a mistake.
pub(super) fn slices(reading: &mut Reading<'_>, said: &[Spanned<Entry>]) -> Vec<SliceConfig> {
    let mut slices: Vec<SliceConfig> = Vec::new();
    for (number, entry) in said.iter().enumerate() {
        let Some(slice) = slice(reading, number, entry) else { continue };
        if let Some(other) = slices.iter().find(|other| other.name == slice.name) {
            let what = format!(
                "slices[{number}].name = \"{}\": line {} has that name; choose another",
                slice.name, other.line
            );
            reading.wrong(entry.get_ref().name.span().start, what);
        }
        slices.push(slice);
    }
    if slices.len() > MOST_SLICES {
        let what = format!(
            "slices: {} are more than the {MOST_SLICES} that one agent makes; leave some out",
            slices.len()
        );
        reading.wrong(0, what);
    }
    slices
}

fn slice(reading: &mut Reading<'_>, number: usize, said: &Spanned<Entry>) -> Option<SliceConfig> {
    let Entry { name, gpu, memory, cores, policy, weight, priority } = said.get_ref();
    let key = |key: &str| format!("slices[{number}].{key}");
    let before = reading.mistakes.len();
    let name = reading.setting(&key("name"), Some(name));
    let gpu = reading.value(&key("gpu"), Some(gpu), |text| {
        let meant = text.parse::<DeviceName>();
        meant.map_err(|_| {
            "write the number that nvidia-smi shows, like 0, or a UUID, like \"GPU-8932f937\"".to_owned()
        })
    });
    let memory = reading.value(&key("memory"), memory.as_ref(), |text| {
        refuse_few_bytes(text).map_err(|error| error.to_string())?;
        text.parse::<Quota>().map_err(|fault| fault.to_string())
    });
    let cores = reading.setting(&key("cores"), cores.as_ref());
    let policy = reading.setting(&key("policy"), policy.as_ref());
    let weight = reading.setting(&key("weight"), weight.as_ref());
    let priority = reading.setting(&key("priority"), priority.as_ref());
    let line = reading.line(said.span().start);
    (reading.mistakes.len() == before).then_some(SliceConfig {
        name: name?,
        gpu: gpu?,
        memory,
        cores: cores.unwrap_or(Permille::FULL),
        policy: policy.unwrap_or_default(),
        weight: weight.unwrap_or_default(),
        priority: priority.unwrap_or_default(),
        line,
    })
}
