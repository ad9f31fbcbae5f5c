#include "cli/app.h"

#include <cstdio>
#include <exception>
#include <new>

#include "cli/terminal.h"
#include "config/nearest.h"
#include "config/wrap.h"
#include "core/base/error.h"
#include "core/base/version.h"

namespace melete {
namespace {

constexpr int exit_done = 0, exit_failed = 1, exit_usage = 2;

const Command* find(const std::vector<Command>& table, const std::string& name) {
  for (const Command& command : table) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

[[noreturn]] void fail_unknown(const std::vector<Command>& table, const std::string& name) {
  std::vector<std::string> names{"help", "version"};
  for (const Command& command : table) names.push_back(command.name);
  throw UsageError(
      fmt::format("unknown command '{}'; did you mean '{}'?", shortened(name), nearest_word(name, names)));
}

std::string program_help(const std::vector<Command>& table) {
  std::string out =
      "melete: trains generative audio models and makes sound with them\n\n"
      "usage: melete <command> [words] [options]\n\n";
  TextTable list({"", ""});
  for (const Command& command : table) list.row({"  " + command.name, command.help});
  list.row({"  help", "what a command takes: melete help <command>"});
  list.row({"  version", "the version of this program"});
  return out + list.text();
}

int dispatch(const std::vector<std::string>& args, const std::vector<Command>& table) {
  const std::string first = args.empty() ? "help" : args[0];
  std::vector<std::string> rest(args.begin() + (args.empty() ? 0 : 1), args.end());
  if (first == "version" || first == "--version" || first == "-V") {
    fmt::print("melete {}\n", version());
    return exit_done;
  }
  if (first == "help" || first == "--help" || first == "-h") {
    if (rest.empty()) {
      fmt::print("{}", program_help(table));
      return args.empty() ? exit_usage : exit_done;
    }
    const Command* command = find(table, rest[0]);
    if (!command) fail_unknown(table, rest[0]);
    rest.erase(rest.begin());
    rest.push_back("--help");
    return command->run(rest);
  }
  const Command* command = find(table, first);
  if (!command) fail_unknown(table, first);
  return command->run(rest);
}

// LibTorch puts a stack trace behind its message.
std::string first_line(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string::npos ? "unknown error" : text.substr(begin, text.find('\n', begin) - begin);
}

void print_error(const std::string& message, const std::string& hint) {
  std::fflush(stdout);
  const bool colour = wants_colour(stderr);
  fmt::print(stderr, "{} {}\n", coloured("melete:", Colour::red, colour), message);
  if (!hint.empty()) fmt::print(stderr, "{}\n", coloured(hint, Colour::dim, colour));
}

}  // namespace

int run_program(const std::vector<std::string>& args) {
  return run_program(args, commands());
}

int run_program(const std::vector<std::string>& args, const std::vector<Command>& table) {
  try {
    const int code = dispatch(args, table);
    std::fflush(stdout);
    return code;
  } catch (const UsageError& error) {
    const bool known = !args.empty() && find(table, args[0]);
    print_error(error.what(), known ? "hint: 'melete help " + args[0] + "' shows what it takes"
                                    : "hint: 'melete help' lists the commands");
    return exit_usage;
  } catch (const Error& error) {
    print_error(error.what(), "");
  } catch (const std::bad_alloc&) {
    print_error("out of memory", "hint: a smaller batch, a shorter segment or bf16 needs less");
  } catch (const std::exception& error) {
    print_error(first_line(error.what()), "");
  } catch (...) {
    print_error("unknown error", "");
  }
  return exit_failed;
}

}  // namespace melete
