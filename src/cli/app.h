// The program: one table of commands, and one place where an error becomes a line and an exit code.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace melete {

struct Command {
  std::string name;
  std::string help;  // one line
  // Gets the words after its name; returns the exit code. `--help` among them prints its help.
  std::function<int(const std::vector<std::string>&)> run;
};

// Every command that this build has, in the order in which help lists them.
const std::vector<Command>& commands();

// 0 done, 1 failed, 2 wrong usage, 130 stopped by the user after a clean checkpoint. `args` without the
// program.
int run_program(const std::vector<std::string>& args);
int run_program(const std::vector<std::string>& args, const std::vector<Command>& table);

}  // namespace melete
