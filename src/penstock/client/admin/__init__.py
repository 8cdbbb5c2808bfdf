"""Calls that move no messages: settings, numbers, explanations, dead letters, schedules, webhooks.

Every method is one call of the API and answers with the reply of the contract (`wire`).
"""
