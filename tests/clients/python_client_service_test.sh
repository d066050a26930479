#!/usr/bin/env bash
# The Python client against real services: NACRE is the program, MODELS the folder
# of the bundled models.
PYTHON_CLIENT_TESTS=test_service.py exec "$(dirname "$0")/python_client_test.sh"
