#include "data/base/spoken_english.h"

#include <array>
#include <functional>
#include <map>
#include <regex>
#include <vector>

#include "core/base/error.h"

namespace melete {

namespace {

constexpr int64_t kLargest = 999'999'999'999'999;  // longer ones are said digit by digit
constexpr size_t kMostDigits = 15;

constexpr std::array kSmall = {"zero",    "one",     "two",       "three",    "four",
                               "five",    "six",     "seven",     "eight",    "nine",
                               "ten",     "eleven",  "twelve",    "thirteen", "fourteen",
                               "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
constexpr std::array kTens = {"",      "",      "twenty",  "thirty", "forty",
                              "fifty", "sixty", "seventy", "eighty", "ninety"};
constexpr std::array kMonths = {"January", "February", "March",     "April",   "May",      "June",
                                "July",    "August",   "September", "October", "November", "December"};

std::string below_hundred(int64_t number) {
  if (number < 20) return kSmall[static_cast<size_t>(number)];
  std::string words = kTens[static_cast<size_t>(number / 10)];
  if (number % 10 > 0) words += std::string("-") + kSmall[static_cast<size_t>(number % 10)];
  return words;
}

std::string digits_one_by_one(std::string_view digits) {
  std::string words;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') continue;
    words += words.empty() ? "" : " ";
    words += kSmall[static_cast<size_t>(digit - '0')];
  }
  return words;
}

std::string without_commas(const std::string& digits) {
  std::string plain;
  for (const char letter : digits)
    if (letter != ',') plain += letter;
  return plain;
}

// "1,234", "007" or "3"; one that is too long for a number is said digit by digit.
std::string integer_in_words(const std::string& written) {
  const std::string digits = without_commas(written);
  if (digits.size() > kMostDigits || (digits.size() > 1 && digits.front() == '0'))
    return digits_one_by_one(digits);
  return number_in_words(std::stoll(digits));
}

int64_t value_of(const std::string& written) {
  const std::string digits = without_commas(written);
  return digits.size() > kMostDigits ? kLargest : std::stoll(digits);
}

using Replace = std::function<std::string(const std::smatch&)>;

// What replace() gives for every match; an empty answer leaves the match as it is.
std::string replaced(const std::string& text, const std::regex& what, const Replace& replace) {
  std::string result;
  auto from = text.cbegin();
  for (std::sregex_iterator match(text.begin(), text.end(), what), end; match != end; ++match) {
    result.append(from, (*match)[0].first);
    const std::string words = replace(*match);
    result += words.empty() ? match->str() : words;
    from = (*match)[0].second;
  }
  return result.append(from, text.cend());
}

const char* month_name(const std::string& written) {
  for (const char* month : kMonths)
    if (written.size() >= 3 && std::string_view(month).substr(0, 3) == written.substr(0, 3)) return month;
  return nullptr;
}

const std::string kMonthPattern =
    "(Jan(?:uary|\\.)?|Feb(?:ruary|\\.)?|Mar(?:ch|\\.)?|Apr(?:il|\\.)?|May|June?\\.?|July?\\.?|Aug(?:ust|\\.)"
    "?|"
    "Sep(?:t|tember)?\\.?|Oct(?:ober|\\.)?|Nov(?:ember|\\.)?|Dec(?:ember|\\.)?)";

std::string say_dates(std::string text) {
  const auto with_year = [](const std::string& words, const std::string& year) {
    return year.empty() ? words : words + ", " + year_in_words(std::stoll(year));
  };
  const auto valid_day = [](const std::string& day) { return std::stoi(day) >= 1 && std::stoi(day) <= 31; };
  // 2021-05-03
  static const std::regex iso(R"(\b(\d{4})-(\d{2})-(\d{2})\b)");
  text = replaced(text, iso, [&](const std::smatch& m) -> std::string {
    const int month = std::stoi(m.str(2));
    if (month < 1 || month > 12 || !valid_day(m.str(3))) return "";
    return with_year(
        fmt::format("{} {}", kMonths[static_cast<size_t>(month - 1)], ordinal_in_words(std::stoi(m.str(3)))),
        m.str(1));
  });
  // May 3, 2021; May 3rd
  static const std::regex month_first("\\b" + kMonthPattern +
                                      R"( (\d{1,2})(?:st|nd|rd|th)?\b(?:,? (\d{4})\b)?)");
  text = replaced(text, month_first, [&](const std::smatch& m) -> std::string {
    const char* month = month_name(m.str(1));
    if (month == nullptr || !valid_day(m.str(2))) return "";
    return with_year(fmt::format("{} {}", month, ordinal_in_words(std::stoi(m.str(2)))), m.str(3));
  });
  // 3 May 2021, 3rd of May
  static const std::regex day_first(R"(\b(?:the )?(\d{1,2})(?:st|nd|rd|th)? (?:of )?)" + kMonthPattern +
                                    R"((?:,? (\d{4}))?(?![\w]))");
  return replaced(text, day_first, [&](const std::smatch& m) -> std::string {
    const char* month = month_name(m.str(2));
    if (month == nullptr || !valid_day(m.str(1))) return "";
    return with_year(fmt::format("the {} of {}", ordinal_in_words(std::stoi(m.str(1))), month), m.str(3));
  });
}

std::string say_times(const std::string& text) {
  static const std::regex clock(R"(\b(\d{1,2}):(\d{2})(?: ?([ap])\.?m\b\.?)?)", std::regex::icase);
  return replaced(text, clock, [](const std::smatch& m) -> std::string {
    const int hour = std::stoi(m.str(1)), minute = std::stoi(m.str(2));
    if (hour > 24 || minute > 59) return "";
    const bool half_of_day = m[3].matched;
    std::string words = number_in_words(hour);
    if (minute == 0)
      words += half_of_day ? "" : hour <= 12 ? " o'clock" : " hundred hours";
    else
      words += (minute < 10 ? " oh " : " ") + number_in_words(minute);
    if (half_of_day) words += (m.str(3) == "a" || m.str(3) == "A") ? " a m" : " p m";
    return words;
  });
}

std::string say_amounts(const std::string& text) {
  struct Currency {
    const char *one, *many, *hundredth, *hundredths;
  };
  static const std::map<std::string, Currency> currencies = {
      {"$", {"dollar", "dollars", "cent", "cents"}},
      {"\u00a3", {"pound", "pounds", "penny", "pence"}},
      {"\u20ac", {"euro", "euros", "cent", "cents"}}};
  static const std::regex amount(
      "(\\$|\u00a3|\u20ac)(\\d[\\d,]*)(?:\\.(\\d{2})\\b)?(?: (thousand|million|billion|trillion)\\b)?");
  return replaced(text, amount, [](const std::smatch& m) -> std::string {
    const Currency& currency = currencies.at(m.str(1));
    std::string number = m.str(2), after;
    if (number.ends_with(',')) {  // the sentence's, not the number's
      number.pop_back();
      after = ",";
    }
    if (m[4].matched)
      return fmt::format("{} {} {}{}", integer_in_words(number), m.str(4), currency.many, after);
    const int64_t whole = value_of(number), part = m[3].matched ? std::stoi(m.str(3)) : 0;
    std::string words =
        fmt::format("{} {}", integer_in_words(number), whole == 1 ? currency.one : currency.many);
    if (part > 0)
      words += fmt::format(" and {} {}", number_in_words(part),
                           part == 1 ? currency.hundredth : currency.hundredths);
    return words + after;
  });
}

std::string say_numbers(std::string text) {
  static const std::regex ordinal(R"(\b(\d[\d,]*)(?:st|nd|rd|th)\b)");
  text = replaced(text, ordinal, [](const std::smatch& m) { return ordinal_in_words(value_of(m.str(1))); });
  static const std::regex range("\\b(\\d{1,15})(?:-|\u2013)(\\d{1,15})\\b(?![-\\d])");
  text = replaced(text, range, [](const std::smatch& m) {
    return integer_in_words(m.str(1)) + " to " + integer_in_words(m.str(2));
  });
  // 4 digits without a comma that may be a year
  static const std::regex year(R"((^|[^\d.,$-])(1[1-9]\d\d|20\d\d)(?![\d%]|[.,]\d))");
  text = replaced(text, year,
                  [](const std::smatch& m) { return m.str(1) + year_in_words(std::stoll(m.str(2))); });
  // A minus stands before the number and after nothing that it could join.
  static const std::regex number("(^|[^\\w.])(-|\u2212)?(\\d[\\d,]*)(?:\\.(\\d+))?(%| %)?");
  return replaced(text, number, [](const std::smatch& m) {
    std::string digits = m.str(3), after;
    while (digits.ends_with(',')) {
      digits.pop_back();
      after = ",";
    }
    std::string words = m.str(1);
    if (m[2].matched) words += "minus ";
    words += integer_in_words(digits);
    if (m[4].matched) words += " point " + digits_one_by_one(m.str(4));
    if (m[5].matched) words += " percent";
    return words + after;
  });
}

std::string say_abbreviations(std::string text) {
  struct Rule {
    std::regex written;
    const char* said;
  };
  static const std::vector<Rule> rules = [] {
    const std::pair<const char*, const char*> table[] = {{R"(\bMr\.)", "Mister"},
                                                         {R"(\bMrs\.)", "Misses"},
                                                         {R"(\bMs\.)", "Miz"},
                                                         {R"(\bDr\.)", "Doctor"},
                                                         {R"(\bProf\.)", "Professor"},
                                                         {R"(\bSt\. (?=[A-Z]))", "Saint "},
                                                         {R"(\bSt\.)", "Street"},
                                                         {R"(\bCapt\.)", "Captain"},
                                                         {R"(\bGen\.)", "General"},
                                                         {R"(\bJr\.)", "Junior"},
                                                         {R"(\bSr\.)", "Senior"},
                                                         {R"(\bCo\.)", "Company"},
                                                         {R"(\bLtd\.)", "Limited"},
                                                         {R"(\bInc\.)", "Incorporated"},
                                                         {R"(\be\.g\.)", "for example"},
                                                         {R"(\bi\.e\.)", "that is"},
                                                         {R"(\betc\.)", "et cetera"},
                                                         {R"(\bvs\.)", "versus"},
                                                         {R"(\bapprox\.)", "approximately"},
                                                         {R"(\bNo\. ?(?=\d))", "number "},
                                                         {R"(\bp\. ?(?=\d))", "page "},
                                                         {R"( & )", " and "},
                                                         {R"((\d) ?km\b)", "$1 kilometers"},
                                                         {R"((\d) ?kg\b)", "$1 kilograms"},
                                                         {R"((\d) ?cm\b)", "$1 centimeters"},
                                                         {R"((\d) ?mm\b)", "$1 millimeters"}};
    std::vector<Rule> made;
    for (const auto& [written, said] : table) made.push_back({std::regex(written), said});
    return made;
  }();
  for (const Rule& rule : rules) text = std::regex_replace(text, rule.written, rule.said);
  return text;
}

}  // namespace

std::string number_in_words(int64_t number) {
  if (number < 0) return "minus " + number_in_words(-number);
  if (number < 100) return below_hundred(number);
  if (number < 1000) {
    std::string words = std::string(kSmall[static_cast<size_t>(number / 100)]) + " hundred";
    return number % 100 > 0 ? words + " " + below_hundred(number % 100) : words;
  }
  static constexpr std::pair<int64_t, const char*> scales[] = {{1'000'000'000'000, "trillion"},
                                                               {1'000'000'000, "billion"},
                                                               {1'000'000, "million"},
                                                               {1000, "thousand"}};
  require(number <= kLargest, "[text] expected a number of at most {}, got {}", kLargest, number);
  for (const auto& [scale, name] : scales) {
    if (number < scale) continue;
    std::string words = number_in_words(number / scale) + " " + name;
    return number % scale > 0 ? words + " " + number_in_words(number % scale) : words;
  }
  return "";
}

std::string ordinal_in_words(int64_t number) {
  static const std::map<std::string, std::string> irregular = {
      {"one", "first"},    {"two", "second"}, {"three", "third"},   {"five", "fifth"},
      {"eight", "eighth"}, {"nine", "ninth"}, {"twelve", "twelfth"}};
  std::string words = number_in_words(number);
  const size_t last = words.find_last_of(" -");
  const std::string head = last == std::string::npos ? "" : words.substr(0, last + 1);
  const std::string tail = words.substr(head.size());
  if (const auto found = irregular.find(tail); found != irregular.end()) return head + found->second;
  if (tail.ends_with('y')) return head + tail.substr(0, tail.size() - 1) + "ieth";
  return words + "th";
}

std::string year_in_words(int64_t year) {
  const int64_t century = year / 100, rest = year % 100;
  if (year < 1000 || year > 9999 || (century % 10 == 0 && rest < 10)) return number_in_words(year);
  if (rest == 0) return below_hundred(century) + " hundred";
  return below_hundred(century) + (rest < 10 ? " oh " : " ") + below_hundred(rest);
}

std::string spoken_english(std::string_view text) {
  return say_numbers(say_amounts(say_times(say_dates(say_abbreviations(std::string(text))))));
}

}  // namespace melete
