//! Which of the processes that NVML names are the slice's?
//!
//! A number of NVML's may be of another numbering than ours. What drivers do:
//!
//! - Asked from the initial process-number namespace, every driver gives the numbers that are valid there.
//! - Asked from another one, drivers from 570 on give the processes that are visible there by their numbers there, and
//!   leave all others (the neighbours) with their numbers on the host. 560 and older give all by those of the host, though
//!   their process lists may use ours. So what a process list says proves nothing for this.
//!
//! So our own numbers are believed in the first two cases, and only until the slice was busy by its own events and none of
//! them was listed, three times in a row. Otherwise a number is proven by [`Solitude`], or nothing is attributed.
//!
//! Members in other namespaces are found through `/proc`: it says which namespace a process lives in, and its number
//! there. As long as somebody is listed who could be such a member, and of whom `/proc` does not say, nothing is
//! attributed.
//!
//! What is left to chance: with drivers from 570 on, a neighbour whose number on the host is that of one of our processes
//! in our namespace.

use crate::slice::{Place, Slice};
use crate::used::knows_numbers_of;
use gpuslice_policy::compute::departed::Departed;
use gpuslice_policy::compute::sight::{self, Use, Verdict, Window};
use gpuslice_policy::compute::solitude::Solitude;
use gpuslice_policy::compute::source::Why;
use gpuslice_policy::compute::strangers::Strangers;
use gpuslice_policy::compute::trim::Sample;
use gpuslice_region::ProcessView;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// After so many windows in a row in which we should have been listed, our numbers are not NVML's.
const DENIALS: u32 = 3;

/// What is known of numbers.
#[derive(Debug)]
pub(super) struct Whose {
    namespace: u64,
    /// Windows in a row that spoke against our own numbers; none where these are not believed.
    denials: Option<u32>,
    /// By namespace, and number there.
    departed: Departed<(u64, u32)>,
    solitude: Solitude,
    strangers: Strangers,
}

impl Whose {
    /// To be called while NVML is open.
    pub(super) fn new() -> Self {
        let namespace = namespace_of("self");
        Self {
            namespace: namespace.unwrap_or(0),
            denials: knows_numbers_of(namespace).then_some(0),
            departed: Departed::default(),
            solitude: Solitude::default(),
            strangers: Strangers::default(),
        }
    }

    /// Whether NVML calls processes here by the numbers that they have here.
    pub(super) fn knows_our_numbers(&self) -> bool {
        self.denials.is_some()
    }

    /// Whether a process that is not of the slice surely uses the GPU.
    pub(super) fn sees_strangers(&self) -> bool {
        self.strangers.are_there()
    }

    /// Looks who belongs to the slice: its dead are listed for some time.
    pub(super) fn look(&mut self, slice: &Slice, now: u64) {
        let members = slice.region().processes();
        self.departed.note(members.iter().map(|member| (member.pid_namespace, member.pid)), now);
    }

    /// What a window says of the slice, of which so much is covered by its events. Nothing, or why that cannot be said.
    pub(super) fn judge(
        &mut self,
        slice: &Slice,
        place: Place,
        (uses, window): (&[Use], Window),
        covered: u64,
    ) -> Result<Option<Sample>, Why> {
        let members = slice.region().processes();
        self.strangers.note(uses, window, self.departed.count());
        self.solitude.look(uses, window, covered, roster(&members));
        let near = |pid: u32| members.iter().any(|one| one.pid == pid && self.is_near(one));
        if uses.iter().any(|entry| near(entry.pid) && self.solitude.is_own(entry.pid)) {
            self.denials = Some(0);
        }
        let verdict = if self.denials.is_some() {
            self.by_our_numbers(&members, (uses, window), covered)?
        } else {
            let holders = members.iter().filter(|member| holds(member, place)).count();
            if holders > self.solitude.proven() {
                return Err(Why::Numbers);
            }
            sight::verdict(uses, window, covered, |pid| self.solitude.is_own(pid))
        };
        let is_denied = verdict == Verdict::Unlisted;
        self.denials = match self.denials {
            Some(denials) if is_denied => {
                Some(denials.saturating_add(1)).filter(|denials| *denials < DENIALS)
            }
            before => before.map(|_| 0),
        };
        match verdict {
            Verdict::Sample(sample) => Ok(Some(sample)),
            Verdict::Nothing => Ok(None),
            Verdict::Unlisted => Err(Why::Numbers),
        }
    }

    fn by_our_numbers(
        &self,
        members: &[ProcessView],
        (uses, window): (&[Use], Window),
        covered: u64,
    ) -> Result<Verdict, Why> {
        let far: Vec<&ProcessView> = members.iter().filter(|member| !self.is_near(member)).collect();
        let mut own = Vec::new();
        for entry in uses {
            let is_near = members.iter().any(|one| one.pid == entry.pid && self.is_near(one))
                || (self.namespace != 0 && self.departed.was_member(&(self.namespace, entry.pid)));
            if is_near || (!far.is_empty() && is_one_of(&far, entry.pid).ok_or(Why::Elsewhere)?) {
                own.push(entry.pid);
            }
        }
        Ok(sight::verdict(uses, window, covered, |pid| own.contains(&pid)))
    }

    /// Whether a member's number is one of our namespace.
    fn is_near(&self, member: &ProcessView) -> bool {
        self.namespace != 0 && member.pid_namespace == self.namespace
    }
}

/// Whether the process that is called this here is one of these members, who live in other namespaces. None where it
/// cannot be said.
fn is_one_of(far: &[&ProcessView], pid: u32) -> Option<bool> {
    let namespace = namespace_of(&pid.to_string())?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    // Its number in the innermost namespace, which is its own.
    let number: u32 = numbers.split_whitespace().next_back()?.parse().ok()?;
    Some(far.iter().any(|member| member.pid_namespace == namespace && member.pid == number))
}

fn namespace_of(process: &str) -> Option<u64> {
    fs::metadata(format!("/proc/{process}/ns/pid")).ok().map(|namespace| namespace.ino())
}

/// Whether a process has taken memory of a device, as all do that run anything there.
fn holds(member: &ProcessView, place: Place) -> bool {
    member.held.get(place.device.index()).is_some_and(|held| *held > 0)
}

/// What tells these processes from others.
fn roster(members: &[ProcessView]) -> u64 {
    let words = members.iter().flat_map(|member| [u64::from(member.pid), member.start]);
    words.fold(members.len() as u64, |sum, word| {
        (sum.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}
