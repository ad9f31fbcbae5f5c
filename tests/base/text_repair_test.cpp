// Damaged text is made plain as ftfy does it; the right answers are its own (version 6.3.1).
#include "data/base/text_repair.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "data/base/unicode.h"

namespace melete {
namespace text_repair_test {

// Quotes that lost a byte, hard spaces that became plain ones, bytes shown as a question mark; and what must
// stay.
TEST(TextRepair, DamagedQuotesAreReadAsFtfyReadsThem) {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"â€œlike thisâ€", "\"like thisâ€"},
      {"â€œlike this â€ and more", "\"like this †and more"},
      {"â€œlike thisâ€�", "\"like this�"},
      {"â€œlike thisâ€ and schÃ¶n", "\"like this†and schön"},
      {"say â€ again", "say †again"},
      {"it saidâ€", "it saidâ€"},
      {"â€œyesâ€?", "\"yes�"},
      {"â€œyes â€?", "\"yes �"},
      {"â€œyesâ€.", "\"yesâ€."},
      {"â€œyesâ€, he said", "\"yesâ€, he said"},
      {"café â€œyesâ€ é", "café \"yes†é"},
      {"“yesâ€ ok", "\"yes†ok"},
      {"itâ€ s", "it†s"},
      {"â€", "â€"},
      {"â€ ", "†"},
      {"â€  x", "† x"},
      {"weiÃ? nicht", "weiÃ? nicht"},
      {"schÃ? n", "schÃ? n"},
      {"Ã? la carte", "Ã? la carte"},
      {"a â€“ b â€ c", "a – b †c"},
      {"naïve â€œquote â€ end", "naïve \"quote †end"},
      {"â€™tisâ€ ", "'tis†"},
      {"Â ", " "},
      {"100â€ wide", "100†wide"},
      {"5â€™10â€ tall", "5'10†tall"},
      {"he saidâ€œhiâ€", "he said\"hiâ€"},
      {"voilÃ le", "voilà le"},
      {"perÃ²", "però"},
      {"l’Humanitéâ€", "l'Humanitéâ€"},
      {"ã ", "ã "},
      {"ðŸ˜ ", "😠"},
      {"â ‚¬5", "â '¬5"},
      {"â€œA” â€ B", "\"A\" †B"},
  };
  for (const auto& [damaged, wanted] : rows)
    EXPECT_EQ(utf8(repair_text(code_points(damaged))), wanted) << damaged;
}

}  // namespace text_repair_test
}  // namespace melete
