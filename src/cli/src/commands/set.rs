//! `gpuslice set`: changes the limits of a running slice.

use crate::arguments::Set;
use crate::output::ending::Ending;
use crate::output::failure::{self, Failure};
use crate::slices::Survey;
use crate::slices::agent::{AgentAnswer, AgentChange};
use crate::slices::bounds::{self, Bounds};
use crate::slices::survey;
use gpuslice_policy::config::{Config, CorePolicy, DeviceIdentity, DeviceName, Priority, gpu_uuid_text};
use gpuslice_policy::time::GpuTime;
use gpuslice_policy::units::{Bytes, Setting as _};
use gpuslice_region::{DeviceView, Limits, LimitsChange, Monitor, RegionError, Sharing};
use gpuslice_slices::discovery::FoundRegion;
use gpuslice_slices::figures;
use gpuslice_slices::slot::Name;

/// Report of a change of limits.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangeReport {
    /// Remarks about the values that the user typed.
    pub(crate) warnings: Vec<String>,
    /// One line of text for each changed limit.
    pub(crate) changes: Vec<String>,
}

/// Changes the limits of a slice: `gpuslice set`.
pub(crate) fn set(wish: &Set) -> Result<Ending, Failure> {
    let (region, monitor) = Survey::now()?.open(&wish.slice)?;
    let told = apply(&region, &monitor, wish)?;
    wish.mem.iter().for_each(failure::remark);
    told.warnings.iter().for_each(|warning| failure::note(warning));
    failure::print(&told.changes.iter().map(|change| format!("{change}\n")).collect::<String>())?;
    Ok(Ending::Code(0))
}

/// Changes the limits of the slice with this region, unless a value in `wish` is wrong.
///
/// If gpuslice-agent has made the slice, the agent changes the limits. Otherwise the operator's file bounds them. The slice's
/// processes set back limits above the file, so the file is written before the region.
pub(crate) fn apply(region: &FoundRegion, monitor: &Monitor, wish: &Set) -> Result<ChangeReport, Failure> {
    let failed = |error: RegionError| survey::failed(region, &error);
    monitor.reap().map_err(failed)?;
    if monitor.processes().is_empty() {
        return Err(bounds::unused(region).unwrap_or_else(|| {
            Failure::new(format!(
                "no process lives in {}; the next one brings its own limits, set them where it is started",
                survey::shown(region)
            ))
        }));
    }
    let config = config_of(wish);
    let devices = monitor.devices();
    if devices.is_empty() {
        return Err(Failure::new(format!(
            "{} has no device yet: none of its processes has started CUDA; try again when one has",
            survey::shown(region)
        )));
    }
    check(wish, &config, &devices)?;
    let bounds = Bounds::of(region, wish.into())?;
    if let Some(slice) = bounds.agent_slice()
        && let Some(told) = by_agent(slice, monitor, wish, &config, &devices, &bounds)?
    {
        return Ok(told);
    }
    if let Some(above) = above_bounds(wish, &config, &devices, &bounds) {
        return Err(above);
    }
    bounds.write()?;
    let change = |device: &DeviceView| {
        let asked = WantedLimits::of(wish, device, &config);
        (asked != WantedLimits::default()).then(|| asked.on(device.limits))
    };
    let changes = monitor.change_limits(change).map_err(failed)?;
    let mut told = ChangeReport::default();
    for LimitsChange { before, after } in &changes {
        let asked = WantedLimits::of(wish, before, &config);
        told.warnings.extend(warnings(before, &config));
        told.changes.extend(described(monitor, before, asked, *after));
    }
    told.warnings.extend(without_effect(wish, &changes).map(str::to_owned));
    Ok(told)
}

/// Asks gpuslice-agent to change one of its slices. Then the limits also hold after a restart, and may be raised. Returns none if
/// the agent cannot change it: the agent does not run, this user may not ask it, or its protocol cannot express the wish.
fn by_agent(
    slice: &Name,
    monitor: &Monitor,
    wish: &Set,
    config: &Config,
    devices: &[DeviceView],
    bounds: &Bounds,
) -> Result<Option<ChangeReport>, Failure> {
    // A slice of the agent has limits on only one GPU, which its file names. A tenant can add other devices to the region.
    let Some(ceilings) = bounds.ceilings() else { return Ok(None) };
    let is_its = |device: &&DeviceView| ceilings.has_share_of(identity(device));
    let Some(device) = devices.iter().find(is_its) else { return Ok(None) };
    let asked = WantedLimits::of(wish, device, config);
    let WantedLimits { memory, burst: None, policy: None, weight: None, priority: None, .. } = asked else {
        return Ok(None);
    };
    let Some(change) = AgentChange::new(memory, config.share_of(identity(device))) else { return Ok(None) };
    match change.ask(slice) {
        AgentAnswer::Unreachable => Ok(None),
        AgentAnswer::Refused(why) => Err(Failure::new(why)),
        AgentAnswer::Done => {
            let after = monitor.limits(device.device);
            let changes = described(monitor, device, asked, after);
            Ok(Some(ChangeReport { warnings: warnings(device, config), changes }))
        }
    }
}

/// Converts the typed values to a configuration.
fn config_of(wish: &Set) -> Config {
    let mut config = Config::default();
    if let Some(memory) = &wish.mem {
        config.memory = memory.quotas.clone();
    }
    if let Some(cores) = &wish.cores {
        config.cores = cores.shares.clone();
    }
    config
}

/// Checks that each list names devices of the slice, and that each name fits only one device.
fn check(wish: &Set, config: &Config, devices: &[DeviceView]) -> Result<(), Failure> {
    let uuids: Vec<[u8; 16]> = devices.iter().map(|device| device.uuid.0).collect();
    let typed = [wish.mem.as_ref().map(|memory| &memory.text), wish.cores.as_ref().map(|cores| &cores.text)];
    let identities: Vec<DeviceIdentity> = devices.iter().map(identity).collect();
    let absent = [config.memory.absent(&identities), config.cores.absent(&identities)];
    for (text, absent) in typed.into_iter().zip(absent) {
        match text {
            Some(text) if !config.ambiguous(&uuids).is_empty() => {
                return Err(Failure::new(format!(
                    "{text:?} names a device by what several UUIDs begin with; write more of it"
                )));
            }
            Some(text) if !absent.is_empty() => {
                let names: Vec<String> = absent.iter().map(DeviceName::to_string).collect();
                return Err(Failure::new(format!(
                    "{text:?} names {}, which is no device of the slice; `gpuslice status` shows its devices",
                    names.join(" and ")
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the refusal of limits above those of the operator's file. The processes of the slice would set such limits back.
fn above_bounds(wish: &Set, config: &Config, devices: &[DeviceView], bounds: &Bounds) -> Option<Failure> {
    let ceilings = bounds.ceilings()?;
    devices.iter().find_map(|device| {
        let ceiling = ceilings.of(identity(device));
        // A limit that a tenant has raised itself does not count as a part of the wish.
        let wanted = WantedLimits::of(wish, device, config).on(device.limits.within(&ceiling));
        if wanted.within(&ceiling) == wanted {
            return None;
        }
        let memory = ceiling.memory.map(|bytes| bytes.to_string());
        let cores = ceiling.cores.map(|cores| format!("{} % of the GPU's time", cores.setting()));
        let priority = ceiling.priority.map(|priority| format!("{} priority", priority.setting()));
        let policy = ceiling.policy.map(|policy| format!("policy {}", policy.setting()));
        let weight = ceiling.weight.map(|weight| format!("a weight of {}", weight.setting()));
        let burst = ceiling.burst.map(|burst| format!("a burst of {}", burst.setting()));
        let all = [memory, cores, policy, weight, priority, burst];
        let most: Vec<String> = all.into_iter().flatten().collect();
        Some(bounds.refusal(&most.join(", "), &gpu_uuid_text(&device.uuid.0)))
    })
}

fn identity(device: &DeviceView) -> DeviceIdentity {
    let ordinal = u32::try_from(device.device.index()).ok();
    DeviceIdentity { ordinal, bus: None, uuid: device.uuid.0, total: Bytes::new(device.total) }
}

fn warnings(device: &DeviceView, config: &Config) -> Vec<String> {
    let said = config.limits_for(identity(device)).warnings.into_iter().map(|warning| warning.to_string());
    said.map(|warning| warning.strip_prefix("gpuslice: ").map(str::to_owned).unwrap_or(warning)).collect()
}

/// The values that the user typed for one device. `None` keeps the present value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct WantedLimits {
    memory: Option<u64>,
    cores: Option<u32>,
    burst: Option<GpuTime>,
    policy: Option<CorePolicy>,
    weight: Option<u32>,
    priority: Option<Priority>,
}

impl WantedLimits {
    fn of(wish: &Set, device: &DeviceView, config: &Config) -> Self {
        Self {
            memory: config.limits_for(identity(device)).memory.map(Bytes::get),
            cores: config.share_of(identity(device)).map(|share| share.get().into()),
            burst: wish.burst.as_ref().map(|burst| burst.burst.span()),
            policy: wish.policy,
            weight: wish.weight.map(|weight| weight.get().into()),
            priority: wish.priority,
        }
    }

    fn on(self, limits: Limits) -> Limits {
        Limits {
            memory: self.memory.or(limits.memory),
            cores_permille: self.cores.unwrap_or(limits.cores_permille),
            burst: self.burst.unwrap_or(limits.burst),
            sharing: Sharing {
                policy: self.policy.unwrap_or(limits.sharing.policy),
                weight: self.weight.unwrap_or(limits.sharing.weight),
                priority: self.priority.unwrap_or(limits.sharing.priority),
            },
            ..limits
        }
    }
}

/// Returns remarks about typed values that have no effect on any device at present.
fn without_effect(wish: &Set, changes: &[LimitsChange]) -> impl Iterator<Item = &'static str> {
    let never = |has_effect: fn(&Limits) -> bool| !changes.iter().any(|change| has_effect(&change.after));
    let is_divided = |limits: &Limits| limits.sharing.policy != CorePolicy::Fixed;
    let weight = wish.weight.is_some() && never(is_divided);
    let burst = wish.burst.is_some() && never(Limits::is_paced);
    let weight =
        weight.then_some("a weight has no effect under policy fixed; it has under equal and best-effort");
    let burst = burst.then_some(
        "a burst has no effect on a slice that has all of its devices' time; it has when --cores is less",
    );
    weight.into_iter().chain(burst)
}

/// Describes the changes of a device.
fn described(monitor: &Monitor, device: &DeviceView, asked: WantedLimits, after: Limits) -> Vec<String> {
    let before = device.limits;
    let mut told = Vec::new();
    if let Some(quota) = asked.memory {
        let [old, new] = [before.memory, after.memory].map(figures::exact_limit);
        told.push(format!("{old} -> {new}{}", beyond(monitor, device, quota)));
    }
    if asked.cores.is_some() {
        let [old, new] = [before, after].map(|limits| figures::percent(limits.cores_permille.into()));
        told.push(format!("{old} -> {new} of its time"));
    }
    if asked.burst.is_some() {
        let [old, new] = [before, after].map(|limits| limits.burst);
        told.push(format!("burst {old} -> {new}"));
    }
    let sharing = [before, after].map(|limits| limits.sharing);
    if asked.policy.is_some() {
        let [old, new] = sharing.map(|sharing| sharing.policy.setting());
        told.push(format!("policy {old} -> {new}"));
    }
    if asked.weight.is_some() {
        let [old, new] = sharing.map(|sharing| sharing.weight);
        told.push(format!("weight {old} -> {new}"));
    }
    if asked.priority.is_some() {
        let [old, new] = sharing.map(|sharing| sharing.priority.setting());
        told.push(format!("priority {old} -> {new}"));
    }
    told.iter().map(|line| format!("GPU-{}: {line}", device.uuid)).collect()
}

/// Returns a remark if the slice holds more than `quota` on the device.
fn beyond(monitor: &Monitor, device: &DeviceView, quota: u64) -> String {
    let held = monitor.held(device.device);
    if held > quota {
        format!("; it holds {}, and gets no more until it has freed enough", figures::size(held))
    } else {
        String::new()
    }
}
