// SPDX-License-Identifier: Apache-2.0
#include <slipstream/cli/cli.h>

int main(int argc, char** argv) { return slipstream::run_cli(argc, argv, slipstream::Registry::builtin()); }
