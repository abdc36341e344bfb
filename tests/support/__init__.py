"""Servers and proxies that tests run against."""
