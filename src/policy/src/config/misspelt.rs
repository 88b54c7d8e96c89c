//! Warnings of variables whose name is a misspelt setting.

use super::keys::resembled;
use super::messages::{SourcedValue, Warning};
use super::reading::settings_that_are_set;
use super::sources::OperatorFiles;

/// Returns a warning for each variable whose name is a misspelt setting. `environment` has all variables.
///
/// If a source sets the resembled setting, the variable probably belongs to another program. Then there is no warning.
#[must_use]
pub fn misspelt(environment: &[(String, Vec<u8>)], files: &OperatorFiles<'_>) -> Vec<Warning> {
    let set = environment.iter().filter(|(_, value)| !value.trim_ascii().is_empty());
    let found: Vec<_> = set.filter_map(|(name, value)| Some((name, value, resembled(name)?))).collect();
    if found.is_empty() {
        return Vec::new();
    }
    let variable =
        |key: &str| environment.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone());
    let is_set = settings_that_are_set(&variable, files);
    let unset = found.into_iter().filter(|(_, _, meant)| !is_set(meant));
    unset
        .map(|(name, value, meant)| Warning::Misspelt {
            said: SourcedValue::environment(name, value.clone()),
            meant,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::keys::settings;
    use super::super::sources::{FIXED_FILE, FileRead};
    use super::*;

    const NO_FILES: OperatorFiles<'static> =
        OperatorFiles { named: FileRead::Absent, fixed: FileRead::Absent };

    fn told(environment: &[(&str, &str)], files: &OperatorFiles<'_>) -> Vec<String> {
        let environment: Vec<_> =
            environment.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect();
        misspelt(&environment, files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_misspelt_variable_is_reported_with_its_likely_meaning() {
        for (name, means) in [
            ("GPU_MEM_LIMT", "GPU_MEM_LIMIT"),
            ("gpu_mem_limit", "GPU_MEM_LIMIT"),
            ("GPU_MEMORY_LIMIT", "GPU_MEM_LIMIT"),
            ("GPU_MEM_LIMITS", "GPU_MEM_LIMIT"),
            ("GPU_MEM_LIMIT_0", "GPU_MEM_LIMIT"),
            ("GPUMEM_LIMIT", "GPU_MEM_LIMIT"),
            ("GPU-MEM-LIMIT", "GPU_MEM_LIMIT"),
            ("GPU_CORES_PERCENT", "GPU_CORE_PERCENT"),
            ("GPU_CORE_PERCENTAGE", "GPU_CORE_PERCENT"),
            ("GPU_MEM_OVERSUBSCRIPTION", "GPU_MEM_OVERSUBSCRIBE"),
            ("GPUSLICE_CONF", "GPUSLICE_CONFIG"),
            ("GPUSLICE_REGOIN", "GPUSLICE_REGION"),
            ("CUDA_DEVICE_MEM_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT"),
            ("CUDA_DEVICE_SM_LIMITS", "CUDA_DEVICE_SM_LIMIT"),
        ] {
            let line = format!(
                "gpuslice: {name}=\"4GiB\" is not a setting of gpuslice and limits nothing; if {means} is meant, rename \
                 it, otherwise unset it."
            );
            assert_eq!(told(&[(name, "4GiB")], &NO_FILES), [line]);
        }
    }

    #[test]
    fn variables_of_others_are_not_warned_of() {
        // Names of ROCm, AMD, Slurm, JAX, TensorFlow, CUDA, HAMi and Kubernetes, and names that users may choose.
        for name in [
            "GPU_DEVICE_ORDINAL",
            "GPU_MAX_HEAP_SIZE",
            "GPU_MAX_ALLOC_PERCENT",
            "GPU_SINGLE_ALLOC_PERCENT",
            "GPU_MAX_HW_QUEUES",
            "GPU_MAX_WORKGROUP_SIZE",
            "GPU_MAX_COMMAND_QUEUES",
            "GPU_FORCE_64BIT_PTR",
            "GPU_FORCE_BLIT_COPY_SIZE",
            "GPU_ENABLE_COOP_GROUPS",
            "GPU_ENABLE_PAL",
            "GPU_NUM_COMPUTE_RINGS",
            "GPU_NUM_MEM_DEPENDENCY",
            "GPU_USE_SYNC_OBJECTS",
            "GPU_DUMP_CODE_OBJECT",
            "GPU_IMAGE_DMA",
            "GPU_PINNED_XFER_SIZE",
            "GPU_XFER_BUFFER_SIZE",
            "GPU_STAGING_BUFFER_SIZE",
            "GPU_TARGET",
            "GPU_ARCHS",
            "GPU_NUM",
            "GPU_COUNT",
            "GPU_ID",
            "GPU_MEM",
            "GPU_MEMORY",
            "GPU_MEMORY_UTILIZATION",
            "GPU_MEM_UNIT",
            "GPU_MEM_SIZE",
            "GPU_CORE_COUNT",
            "GPU_CORE_CLOCK",
            "GPU_LIMIT",
            "GPU_UTIL_LIMIT",
            "GPU_VISIBLE_DEVICES",
            "CPU_MEM_LIMIT",
            "NPU_CORE_PERCENT",
            "MEM_LIMIT",
            "SLURM_GPUS",
            "SLURM_MEM_PER_GPU",
            "XLA_PYTHON_CLIENT_MEM_FRACTION",
            "TF_GPU_ALLOCATOR",
            "CUDA_DEVICE_ORDER",
            "CUDA_DEVICE_MAX_CONNECTIONS",
            "CUDA_DEVICE_WAITS_ON_EXCEPTION",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE",
            "CUDA_DEVICE_MEMORY_LIMIT_64",
            "GPUSLICE_LIB",
            "GPUSLICE_BIN",
            "GPUSLICE_PORT",
            "GPUSLICE_SERVICE_HOST",
            "GPUSLICE_PORT_9400_TCP_ADDR",
            "GPU_\u{e9}",
            "",
        ] {
            assert_eq!(told(&[(name, "1")], &NO_FILES), [""; 0], "{name}");
        }
        for name in settings() {
            assert_eq!(told(&[(name, "1")], &NO_FILES), [""; 0], "{name}");
        }
        assert_eq!(told(&[(&"GPU_MEM_LIMIT".repeat(9), "1")], &NO_FILES), [""; 0]);
    }

    #[test]
    fn a_name_is_somebody_elses_where_the_setting_itself_is_set() {
        let misspelt = ("GPU_MEMORY_LIMIT", "4GiB");
        let file = |text: &'static str| OperatorFiles {
            named: FileRead::Absent,
            fixed: FileRead::Contents(text.as_bytes()),
        };
        assert_eq!(told(&[misspelt, ("GPU_MEM_LIMIT", "1g")], &NO_FILES), [""; 0]);
        assert_eq!(told(&[misspelt], &file("GPU_MEM_LIMIT=1g")), [""; 0]);
        assert_eq!(told(&[misspelt], &file("CUDA_DEVICE_MEMORY_LIMIT_0=1g")), [""; 0]);
        assert_eq!(told(&[misspelt, ("GPU_MEM_LIMIT", " ")], &file("GPU_CORE_PERCENT=30")).len(), 1);
        assert_eq!(told(&[("GPU_MEMORY_LIMIT", " ")], &NO_FILES), [""; 0]);
        assert_eq!(told(&[misspelt, ("GPUSLICE_CONFIG", FIXED_FILE)], &file("GPU_MEM_LIMIT=1g")), [""; 0]);
    }
}
