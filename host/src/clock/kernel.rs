//! The kernel's word for the clock.

use super::source::{DRIFT_PPM_MAX, KERNEL_ERROR_MS_MAX, Sample, Source, SourceError, StepAwareness};

/// The kernel: `maxerror` of `adjtimex`, which whatever daemon keeps the clock sets at its updates, and which the
/// kernel raises by 0.5 ms a second in between. Worth as much as that daemon puts into it: ntpd and chronyd (with
/// `rtcsync`) their whole distance to true time, systemd-timesyncd nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kernel;

impl Source for Kernel {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn sample(&mut self) -> Result<Sample, SourceError> {
        let state = snowmint_kernel_clock::read().map_err(|error| {
            SourceError::Failed(format!("the kernel does not tell of its clock: {error}"))
        })?;
        if !state.is_synchronised {
            let what = "the kernel says that nothing keeps its clock in step";
            return Err(SourceError::Unsynchronised(what.into()));
        }
        // Whoever sets the clock takes away its word in the kernel (`ntp_clear`), but for a daemon's own steps, which
        // it answers for.
        Ok(Sample {
            error_ns: state.error_us_max.saturating_mul(1_000),
            drift_ppm: DRIFT_PPM_MAX,
            steps: StepAwareness::Aware,
        })
    }

    fn error_ms_max_default(&self) -> u32 {
        KERNEL_ERROR_MS_MAX
    }

    fn remark(&self) -> Option<&'static str> {
        Some(
            "the kernel's bound grows by 0.5 ms a second between its daemon's updates; chrony tells a closer one",
        )
    }

    fn way_out(&self) -> &'static str {
        "install and start chrony (chronyd tells the kernel only with `rtcsync`), or answer for the clock yourself \
         with `--clock assume:MS`"
    }
}
