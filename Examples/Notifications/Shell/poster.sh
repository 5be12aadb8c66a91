#!/bin/sh
exec notify-center post --distributed com.example.order --object till-3 --userinfo '{"total": 12.5}'
