//! Counts how often the program and its graphs use each user object.

use gpuslice_driver::types::{Status, status};

use super::objects::ProcessObjects;
use crate::model::user_objects::EndedObjects;

impl ProcessObjects {
    /// Removes `count` uses of an object. If nothing uses the object any more, returns it as ended.
    pub(crate) fn drop_uses(&mut self, object: u64, count: u32) -> Result<EndedObjects, Status> {
        let found = self.user_objects.get_mut(object).map_err(|_| status::INVALID_VALUE)?;
        found.uses = found.uses.checked_sub(count).ok_or(status::INVALID_VALUE)?;
        if found.uses > 0 {
            return Ok(EndedObjects::default());
        }
        Ok(EndedObjects(self.user_objects.remove(object).into_iter().collect()))
    }
}
