"""The pipelines of cer-gpu for the plugins of pySigma."""

from sigma.processing.pipeline import ProcessingPipeline

from cer_gpu.sigma.pipelines.named import pipeline_named


def cer_gpu_windows() -> ProcessingPipeline:
    """Return the pipeline of Windows events, of Sysmon and of the Security log."""
    return pipeline_named("windows")


def cer_gpu_sysmon() -> ProcessingPipeline:
    """Return the pipeline of Windows events, of Sysmon where a category is of its events."""
    return pipeline_named("sysmon")


def cer_gpu_windows_audit() -> ProcessingPipeline:
    """Return the pipeline of Windows events, of the Security log where a category is of its events."""
    return pipeline_named("windows_audit")


def cer_gpu_ecs() -> ProcessingPipeline:
    """Return the pipeline of events under the names of ECS."""
    return pipeline_named("ecs")


def cer_gpu_linux() -> ProcessingPipeline:
    """Return the pipeline of Linux, of Sysmon where a category is of its events, and of auditd."""
    return pipeline_named("linux")


def cer_gpu_cloudtrail() -> ProcessingPipeline:
    """Return the pipeline of records of AWS CloudTrail."""
    return pipeline_named("cloudtrail")


def cer_gpu_zeek() -> ProcessingPipeline:
    """Return the pipeline of logs of Zeek."""
    return pipeline_named("zeek")


__all__ = [
    "cer_gpu_cloudtrail",
    "cer_gpu_ecs",
    "cer_gpu_linux",
    "cer_gpu_sysmon",
    "cer_gpu_windows",
    "cer_gpu_windows_audit",
    "cer_gpu_zeek",
]
