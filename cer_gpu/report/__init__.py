"""The results of a query, or of rules, as one HTML page that needs nothing else: `write_report`, `write_alerts`."""

from cer_gpu.report.alert_report import write_alerts
from cer_gpu.report.forecast import write_forecast
from cer_gpu.report.funnel_page import write_funnel
from cer_gpu.report.page import ReportSummary, write_report

__all__ = ["ReportSummary", "write_alerts", "write_forecast", "write_funnel", "write_report"]
