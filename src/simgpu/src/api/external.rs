//! What do the functions of this file's rows do?

use super::External;
use crate::driver::Driver;

impl External for Driver {}
