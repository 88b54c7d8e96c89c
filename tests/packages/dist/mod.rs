//! Checks the output of `ci/dist.sh`: its files, its installation and upgrade, and that a second run makes the same bytes.

mod archive;
mod debian;
mod images;
mod layouts;
mod release;
mod wheel;
