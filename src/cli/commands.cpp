// The table of commands; a new one is an include and a line here.
#include "cli/app.h"

namespace melete {

const std::vector<Command>& commands() {
  static const std::vector<Command> table{};
  return table;
}

}  // namespace melete
