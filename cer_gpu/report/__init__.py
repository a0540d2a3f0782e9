"""The results of a query as one HTML page that needs nothing else: `write_report`."""

from cer_gpu.report.funnel import write_funnel
from cer_gpu.report.page import ReportSummary, write_report

__all__ = ["ReportSummary", "write_funnel", "write_report"]
