#include "cli/codec_command.h"

#include <fmt/format.h>

#include "cli/terminal.h"
#include "config/nearest.h"
#include "core/base/error.h"

namespace melete {

int codec_command(const std::vector<std::string>& args) {
  struct Part {
    std::string name, help;
    int (*run)(const std::vector<std::string>&);
  };
  static const std::vector<Part> parts = {
      {"encode", "recordings to token files", codec_encode_command},
      {"decode", "token files to recordings", codec_decode_command},
      {"eval", "measures a codec on recordings, beside Opus", codec_eval_command},
      {"compare", "one recording with every number of quantizers, and through Opus", codec_compare_command},
  };
  TextTable list({"", ""});
  std::vector<std::string> names;
  for (const Part& part : parts) {
    list.row({"  " + part.name, part.help});
    names.push_back(part.name);
  }
  if (args.empty()) throw UsageError("codec what? There is: encode, decode, eval, compare");
  if (args.front() == "--help" || args.front() == "-h") {
    fmt::print(
        "usage: melete codec <what> [words] [options]\n\n{}\n'melete codec <what> --help' tells more\n",
        list.text());
    return 0;
  }
  for (const Part& part : parts)
    if (part.name == args.front()) return part.run({args.begin() + 1, args.end()});
  throw UsageError(fmt::format("`codec {}` is not known; did you mean `codec {}`?", args.front(),
                               nearest_word(args.front(), names)));
}

}  // namespace melete
