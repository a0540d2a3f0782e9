"""The matches of a query, or alerts of rules, as one self-contained HTML page: `write_report`, `write_alerts`."""

from cer_gpu.report.alert_report import write_alerts
from cer_gpu.report.forecast import write_forecast
from cer_gpu.report.funnel_page import write_funnel
from cer_gpu.report.page import ReportSummary, write_report

__all__ = ["ReportSummary", "write_alerts", "write_forecast", "write_funnel", "write_report"]
