#include "data/base/synth_sentences.h"

#include <cctype>
#include <cstdint>
#include <string_view>

namespace melete {

namespace {

// Words of a kind, with spaces between. "_" stands for a space inside of one.
struct WordList {
  std::string_view kind;
  std::string_view words;
};

constexpr WordList kWordLists[] = {
    {"noun",
     "answer apple arm army artist aunt author baby bag ball bank basket bath bean beard bed bell bicycle "
     "bird block board boat body bone book bottle bowl box boy branch bread breakfast brother bucket bus "
     "butter button cage cake camera camp car card carpet cat chair chance cheese chicken child choice "
     "circle city clock cloth cloud coat coffee coin collar colour corner cottage cough country cousin cow "
     "cream crowd cup curtain daughter day desk dinner dish dog donkey door dream dress drum duck dust ear "
     "earth egg elbow engine evening eye face farm father feather fence field finger fire fish floor flower "
     "fog food foot fork friend frog fruit garage gate giant girl glass glove goat gold grandmother grass "
     "guard guitar hair hammer hand hat heart hill hole home honey horse hotel house idea ink island jacket "
     "job joke judge juice key king kitchen knee knife lake lamp language lawyer leaf leather lesson light "
     "lion lip lunch machine map market meal measure meat milk minute money monkey month moon morning mother "
     "mountain mouse mouth music nail name neck needle nephew noise north nose nurse ocean office oil orange "
     "oven owl oyster page paint pair palace paper park party path pencil people pepper piano picture pig "
     "pillow pilot pipe plate pleasure pocket poem poison police potato prince prize purse queen question "
     "rabbit radio rain ring river road roof room rope rose sailor salt sand school science sea seat sheep "
     "shelf shirt shoe shop shoulder sister skirt sky smoke snake snow soap song soup south spoon square "
     "stable stair star station stone storm story street student sugar sun table tail teacher television "
     "theatre thing thought thread throat thumb ticket tiger toe tool tooth tour towel tower town toy train "
     "treasure tree trouble uncle uniform vegetable village vision voice wage wall watch water weather wheel "
     "wife wind window wing winter witness woman wood wool world yard year youth zebra zoo"},
    {"adjective",
     "angry awful bad beautiful big black blue brave bright broad brown busy calm careful cheap clean clear "
     "clever cold common cool cruel curious damp dark deep different dirty dry dull easy empty famous fast "
     "fat fine foolish free fresh full funny gentle good great green grey happy hard heavy high hollow huge "
     "hungry huge kind large lazy little lonely long loud lovely lucky narrow new noisy odd old open pale "
     "plain poor pretty proud pure quick quiet rare red rich rough round royal rude sad safe secret serious "
     "sharp short shy sick silent silly simple slow small smooth soft sour strange strong sudden sweet tall "
     "thick thin thirsty tired tiny true ugly unusual usual useful warm weak wet white whole wide wild wise "
     "wonderful yellow young"},
    {"past",
     "asked_for believed borrowed bought broke brought built called caught changed chose cleaned closed "
     "counted covered described drew drove enjoyed enjoyed examined finished fixed followed forgot found "
     "gave_away guarded heard helped hid imagined joined judged kept kicked knew laughed_at left lifted "
     "liked lost loved made measured mentioned missed moved needed noticed offered opened owned painted "
     "passed picked_up pulled pushed reached received refused remembered repaired sang_about saw searched "
     "sent shared showed sold started stole studied taught thought_about threw_away touched tried "
     "understood used visited walked_around wanted washed watched wrote_about"},
    {"plain",
     "ask believe bring build buy call carry catch change choose clean close count cover draw drive enjoy "
     "examine find finish fix follow forget give guard help hide imagine join judge keep kick lift look_at "
     "lose love make measure mention move notice offer open paint pass pull push reach receive refuse "
     "remember repair search send share show sing_about start study teach think_about throw touch "
     "understand use visit wash watch write_about"},
    {"person",
     "Adam Alice Anna Arthur Charles David Emma Eve George Grace Hugh Ian Jack Jane Joan John Joyce Judith "
     "Kate Laura Louise Luke Margaret Mary Matthew Michael Oliver Paul Peter Ruth Sarah Sophie Steven "
     "Thomas Victor Walter he she somebody nobody everyone"},
    {"adverb",
     "again already always carefully early easily quietly exactly happily hardly here inside late loudly "
     "nearly never now often outside perhaps probably quickly really seldom slowly soon still suddenly "
     "there today together tomorrow tonight twice usually yesterday"},
    {"preposition",
     "about above across after against along among around at before behind below beside between beyond by "
     "during for from in into near of off on over through to toward under until upon with within without"},
    {"number",
     "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
     "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"},
    {"unit", "years hours miles pages pounds inches minutes boxes dollars people children months letters"},
    {"determiner", "the the the the a his her our my your this that each every another"},
    {"link", "and but because while although so if when before after until"},
    {"greeting", "hello goodbye thank_you welcome sorry please well yes no of_course"},
    {"month",
     "January February March April May June July August September October November December Monday Tuesday "
     "Wednesday Thursday Friday Saturday Sunday"},
};

// <phrase> is a determiner, an adjective or none, a noun.
constexpr std::string_view kVariedPatterns[] = {
    "<person> <past> <phrase>.",
    "<phrase> <past> <phrase> <adverb>.",
    "<phrase> was <adjective> and <adjective>.",
    "<person> <past> <phrase> <preposition> <phrase>.",
    "<phrase> <preposition> <phrase> was <adverb> <adjective>.",
    "<greeting>, <person> <past> <phrase>.",
    "did <phrase> <plain> <phrase>?",
    "why did <person> <plain> <phrase>?",
    "who <past> <phrase> <preposition> <phrase>?",
    "can you <plain> <phrase>?",
    "please <plain> <phrase>!",
    "<plain> <phrase>, <link> <plain> <phrase>.",
    "<person> will <plain> <phrase> in <month>.",
    "there were <number> <unit> <preposition> <phrase>.",
    "<number> <noun>, <number> <noun>, and <number> <noun>.",
    "<person> <past> <phrase>, <link> <phrase> was <adjective>.",
    "<adverb>, <person> and <person> <past> <phrase>.",
    "if you <plain> <phrase>, <person> will <plain> <phrase>.",
    "<noun>, <noun>, <adjective>, <adjective>, <noun>.",
    "the <noun> of the <noun> is <adjective>.",
    "I <adverb> <plain> <phrase> with <phrase>.",
    "we <past> <number> <unit> ago.",
    "what a <adjective> <noun>!",
    "they should <plain> <phrase> <preposition> <month>.",
};

class VariedGrammar {
 public:
  explicit VariedGrammar(Rng& rng) : rng_(rng) {}

  std::string expanded(std::string_view pattern) {
    std::string text;
    for (size_t i = 0; i < pattern.size(); ++i) {
      if (pattern[i] != '<') {
        text += pattern[i];
        continue;
      }
      const size_t end = pattern.find('>', i);
      const std::string_view kind = pattern.substr(i + 1, end - i - 1);
      text += kind == "phrase" ? phrase() : word(kind);
      i = end;
    }
    return text;
  }

 private:
  std::string phrase() {
    return expanded(rng_.uniform() < 0.5 ? "<determiner> <noun>" : "<determiner> <adjective> <noun>");
  }

  std::string word(std::string_view kind) {
    for (const WordList& list : kWordLists)
      if (list.kind == kind) return one_of(list.words);
    return std::string(kind);
  }

  std::string one_of(std::string_view words) {
    int64_t count = 1;
    for (const char c : words) count += c == ' ';
    size_t start = 0;
    for (int64_t skip = rng_.integer(0, count); skip > 0; --skip) start = words.find(' ', start) + 1;
    std::string chosen(words.substr(start, words.find(' ', start) - start));
    for (char& c : chosen)
      if (c == '_') c = ' ';
    return chosen;
  }

  Rng& rng_;
};

}  // namespace

std::string varied_sentence(Rng& rng) {
  const auto count = static_cast<int64_t>(std::size(kVariedPatterns));
  std::string text = VariedGrammar(rng).expanded(kVariedPatterns[static_cast<size_t>(rng.integer(0, count))]);
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

}  // namespace melete
