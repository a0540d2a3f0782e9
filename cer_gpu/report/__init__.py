"""The results of a query as one HTML page that needs nothing else: `write_report`."""

from cer_gpu.report.page import Report, write_report

__all__ = ["Report", "write_report"]
